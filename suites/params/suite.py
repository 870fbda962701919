"""The pre-check: does the endpoint enforce the decoding parameters its model was released with? If not, no benchmark is
worth its money.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kvv.cases.contract import COMMON, ContractSuite, Toolbox
from kvv.cases.suite import Context, SuiteKind
from kvv.core import Area, Case
from kvv.profiles.token_counts import Vocabulary
from kvv.suites.params.checks import COMPARISONS


class ParamsSuite(ContractSuite):
    id: ClassVar[str] = "params"
    title: ClassVar[str] = "Decoding parameters"
    kind: ClassVar[SuiteKind] = SuiteKind.PRE_CHECK
    areas: ClassVar[tuple[Area, ...]] = (Area.DECODING, Area.ERRORS)
    toolbox: ClassVar[Toolbox] = COMMON.extended(comparisons=COMPARISONS)

    def cases(self, context: Context) -> Sequence[Case]:
        return [with_token_ids(case, context) for case in super().cases(context)]


def with_token_ids(case: Case, context: Context) -> Case:
    """The case with every key of logit_bias that is no number replaced by the id of the token that it spells; skipped
    where it has none.
    """
    bias = case.inputs["body"].get("logit_bias")
    texts = [key for key in bias if not key.isdecimal()] if isinstance(bias, Mapping) else []
    if not texts or case.inputs["skip"]:
        return case
    found: dict[str, Sequence[int]] = {
        text: context.tokenizer.ids(text) if isinstance(context.tokenizer, Vocabulary) else [] for text in texts
    }
    unknown = next((text for text, ids in found.items() if len(ids) != 1), None)
    if unknown is not None:
        return replace(case, inputs={**case.inputs, "skip": f"{unknown!r} is no single token of the given tokenizer"})
    names = {text: str(ids[0]) for text, ids in found.items()}
    rounds = [
        {**entry, "requests": {name: _named(request, names) for name, request in entry["requests"].items()}}
        for entry in case.inputs["rounds"]
    ]
    return replace(case, inputs={**case.inputs, "body": _biased(case.inputs["body"], names), "rounds": rounds})


def _named(request: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    return {**request, "body": _biased(request["body"], names)} if "body" in request else request


def _biased(body: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    return (
        {**body, "logit_bias": {names.get(key, key): value for key, value in body["logit_bias"].items()}}
        if "logit_bias" in body
        else body
    )
