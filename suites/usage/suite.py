"""Token accounting: arithmetic, published constants, and the differences the K3 template fixes.

``--tokenizer`` adds full counts; ``--data usage=FILE`` adds cases in the public verifier's own form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kvv.cases.contract import ContractSuite, plain_case, thinking_off
from kvv.cases.suite import Context
from kvv.core import Area, Case, Level, Surface
from kvv.profiles.token_counts import Uncountable, prompt_tokens

#: the value in a case file that stands for the count of the request itself
COUNTED = "counted"
DATA_SOURCE = "https://github.com/MoonshotAI/Kimi-Vendor-Verifier (testdata/prompt_token_cases)"


class UsageSuite(ContractSuite):
    id: ClassVar[str] = "usage"
    title: ClassVar[str] = "Token accounting"
    areas: ClassVar[tuple[Area, ...]] = (Area.USAGE,)
    dataset: ClassVar[str | None] = "usage"
    dataset_optional: ClassVar[bool] = True

    def cases(self, context: Context) -> Sequence[Case]:
        rows = context.dataset.rows if context.dataset is not None else ()
        return [*(fill_counted(case, context) for case in super().cases(context)), *data_cases(rows, context)]


def fill_counted(case: Case, context: Context) -> Case:
    """The case with "counted" replaced by what the template and the run's tokeniser make of its request."""
    wanted = case.inputs["checks"].get("prompt-tokens")
    if not isinstance(wanted, Mapping) or wanted.get("exact") != COUNTED or case.inputs["skip"]:
        return case
    try:
        exact = _count(case.inputs["body"], context)
    except Uncountable as error:
        return replace(case, inputs={**case.inputs, "skip": f"no count for {error}"})
    checks = {**case.inputs["checks"], "prompt-tokens": {**wanted, "exact": exact}}
    rounds = [{**entry, "checks": checks} for entry in case.inputs["rounds"]]
    return replace(case, inputs={**case.inputs, "checks": checks, "rounds": rounds})


def _count(body: Mapping[str, Any], context: Context) -> int:
    assert context.tokenizer is not None  # the claim "tokenizer" skips the case otherwise
    thinking = context.profile.thinking
    return prompt_tokens(
        body,
        context.profile.tokens,
        context.tokenizer,
        default_effort=thinking.default_effort,
        thinking=thinking.default,
    )


def data_cases(rows: Sequence[Mapping[str, Any]], context: Context) -> list[Case]:
    """One streamed case a row, its request sent as it stands. ValueError naming the row's id where that cannot be
    done.
    """
    found: dict[str, Case] = {}
    for row in rows:
        case = _data_case(row, context)
        if case.id in found:
            raise ValueError(f"row {row['id']!r}: its id is taken after cleaning")
        found[case.id] = case
    return list(found.values())


def _data_case(row: Mapping[str, Any], context: Context) -> Case:
    request: Mapping[str, Any] = row["request"]
    if not isinstance(request.get("messages"), list):
        raise ValueError(f"row {row['id']!r}: its request has no messages")
    body = {**request, "model": context.model, "stream": True, "stream_options": {"include_usage": True}}
    slug = re.sub(r"[^a-z0-9.-]+", "-", row["id"].lower()).strip("-") or "row"
    stub = context.profile.tokens.stub if context.profile.surface is Surface.ENGINE else 0
    return plain_case(
        f"usage/data/{slug}/stream",
        suite="usage",
        area=Area.USAGE,
        level=Level.MUST,
        requirement=f"The given request {row['id']} MUST count {row['expected_prompt_tokens']} prompt tokens",
        source=DATA_SOURCE,
        since="0.2",
        body=body,
        control={
            "model": context.model,
            "messages": [{"role": "user", "content": "Reply with exactly: ready"}],
            "max_tokens": 16,
            "stream": True,
        },
        checks={"prompt-tokens": {"exact": row["expected_prompt_tokens"], "stub": stub}},
        skip=_row_skip(request, context),
    )


def _row_skip(request: Mapping[str, Any], context: Context) -> str:
    if "k3-token-counts" not in context.profile.claims.contracts:
        return "counts of Kimi K3's template"
    if any("fixture://" in url for url in _image_urls(request)):
        return "names an image of the public verifier's checkout"
    if request.get("thinking", {}).get("type") == "disabled" and not thinking_off(context):
        return f"the profile {context.profile.id} does not claim thinking-off on the surface {context.profile.surface}"
    return ""


def _image_urls(request: Mapping[str, Any]) -> list[str]:
    found = []
    for message in request["messages"]:
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list) else ():
            match part:
                case {"image_url": {"url": str(url)}} | {"image_url": str(url)}:
                    found.append(url)
    return found
