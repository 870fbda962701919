"""Every case of the contract suites passes a right endpoint and fails its wrong neighbours.

The right endpoint is made from what a case states; for each check and comparison there is a neighbour that differs in
that one point. Nothing is sent: the observations are fabricated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from kvv.cases.suite import Context, Settings, load_suite
from kvv.core import Case, FaultKind, Outcome, Request, Surface
from kvv.profiles.profile import load_profile

SUITES = ["tool_choice", "dynamic_tools", "response_format", "thinking", "usage", "errors"]
SMALL = 100


def contexts() -> Iterator[tuple[str, Context]]:
    for profile, surface in (("kimi-k3", Surface.VENDOR), ("kimi-k3", Surface.ENGINE), ("openai", Surface.VENDOR)):
        yield (
            f"{profile}-{surface}",
            Context(
                model="kimi-k3",
                profile=load_profile(profile, surface),
                settings=Settings(),
                other_model="other",
                tokenizer=Words(),
            ),
        )


class Words:
    """A tokeniser for tests: one token a word."""

    def count(self, text: str) -> int:
        return len(text.split())


def every_case() -> list[Any]:
    """Each case once: its modes and profiles have the same rounds."""
    found: dict[str, Any] = {}
    for label, context in contexts():
        for suite in SUITES:
            for case in load_suite(suite).cases(context):
                key = re.sub(r"/thinking-on|/stream|/whole", "", case.id)
                if not case.inputs["skip"]:
                    found.setdefault(key, pytest.param(case, id=f"{label}:{case.id}"))
    return list(found.values())


CASES = every_case()


# --- a right endpoint --------------------------------------------------------------------------------


def value_for(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    if "$ref" in schema:
        node: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            node = node[part]
        return value_for(node, root)
    if "anyOf" in schema:
        return value_for(schema["anyOf"][0], root)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            return {name: value_for(schema["properties"][name], root) for name in schema.get("required", ())}
        case "array":
            return [value_for(schema["items"], root)] * schema.get("minItems", 1)
        case "string":
            return "x" * max(1, schema.get("minLength", 1))
        case "integer":
            return schema.get("minimum", 1)
        case "number":
            return 1.5
        case "boolean":
            return True
    return None


def declared(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    holders = [body, *(message for message in body["messages"] if isinstance(message, Mapping))]
    tools = [tool["function"] for holder in holders for tool in holder.get("tools", ())]
    return {tool["name"]: tool.get("parameters", {}) for tool in tools}


def a_call(request: Request, checks: Mapping[str, Any]) -> tuple[str, str]:
    tools = declared(request.body)
    wanted = checks.get("called") or checks.get("calls")
    name = wanted if isinstance(wanted, str) else wanted[0] if wanted else next(iter(tools))
    arguments = checks.get("arguments-equal", value_for(tools[name], tools[name]))
    return name, json.dumps(arguments, ensure_ascii=False)


def token_counts(entry: Mapping[str, Any], names: list[str]) -> dict[str, int]:
    counts = dict.fromkeys(names, SMALL)
    compare = entry["compare"]
    for at, name in enumerate(compare.get("prompt-tokens-grow", ())):
        counts[name] = SMALL + at
    rules = compare.get("prompt-token-difference", [])
    for rule in rules if isinstance(rules, list) else [rules]:
        counts[rule["of"]] = counts[rule["minus"]] + rule.get("is", rule.get("at-least", 0))
    exact = entry["checks"].get("prompt-tokens")
    return dict.fromkeys(names, exact["exact"]) if exact else counts


Change = Callable[[dict[str, Any], Request, Mapping[str, Any], str], None]


class Endpoint:
    """Answers a case's requests rightly; ``change`` may spoil the ingredients of an answer."""

    def __init__(self, lab: Any, case: Case, change: Change | None = None) -> None:
        self.lab = lab
        self.case = case
        self.change = change
        self.rounds = {name: entry for entry in case.inputs["rounds"] for name in entry["requests"]}
        self.names = list(self.rounds)

    def __call__(self, request: Request) -> Any:
        kind, _, name = request.purpose.partition(":")
        if kind in ("control", "between", "after"):
            return self.lab.says()
        entry = self.rounds[name]
        if entry["expect"] == "refused":
            parts: dict[str, Any] = {"refused": True, "message": "no", "kind": "invalid_request_error"}
        else:
            parts = self.parts(request, entry, name)
        if self.change is not None:
            # a neighbour may differ in what is compared at the end
            self.change(
                parts,
                request,
                {**entry, "compare": self.case.inputs["rounds"][-1]["compare"], "names": self.names},
                name,
            )
        if parts.pop("refused", False):
            return self.lab.refuses(**parts)
        prompt, cached = parts.pop("prompt"), parts.pop("cached")
        usage = {"prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7, **parts.pop("usage", {})}
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return self.lab.says(parts.pop("text"), usage=usage, **parts)

    def parts(self, request: Request, entry: Mapping[str, Any], name: str) -> dict[str, Any]:
        checks = entry["checks"]
        parts: dict[str, Any] = {
            "text": f"text {name}" if "distinct-texts" in entry["compare"] else "text",
            "cached": 64,
        }
        last = self.case.inputs["rounds"][-1]
        joint = {**last, "checks": checks}
        parts["prompt"] = token_counts(joint, self.names)[name]
        if {"calls", "called", "arguments-equal", "call-count"} & checks.keys():
            parts |= {"text": None, "calls": [a_call(request, checks)]}
        if "content-schema" in checks:
            schema = request.body["response_format"]["json_schema"]["schema"]
            parts["text"] = json.dumps(value_for(schema, schema))
        if "content-value" in checks:
            parts["text"] = json.dumps(checks["content-value"])
        elif "content-json" in checks:
            parts["text"] = '{"capital":true}'
        if "says" in checks:
            parts["text"] = f"it is {checks['says']}"
        if "recalls" in checks:
            parts["text"] = f"it is {checks['recalls']}"
        if "key-order" in checks:
            parts["text"] = json.dumps(dict.fromkeys(checks["key-order"], 1))
        if checks.get("reasoning", True) and "reasoning-grows" not in entry["compare"]:
            parts["reasoning"] = "hm"
        if "reasoning-grows" in entry["compare"]:
            group, _, number = name.partition(".")
            parts["reasoning"] = "hm" * (int(number) + 10 * entry["compare"]["reasoning-grows"].index(group))
        if "cut-in-reasoning" in entry["compare"]:
            parts |= (
                {"text": "", "finish": "length", "reasoning": "First"} if name == "cut" else {"reasoning": "hm " * 100}
            )
        return parts


# --- wrong neighbours ----------------------------------------------------------------------------------


def accepts(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts.clear()
    parts |= {"text": "ready", "prompt": SMALL, "cached": 0}


def answers_in_prose(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts |= {"text": "I would rather talk.", "calls": []}


def says_stop_with_a_call(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts["finish"] = "stop"


def calls_another_tool(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts["calls"] = [("another_tool", "{}")]


def spoils_arguments(text: str) -> Change:
    def change(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
        parts["calls"] = [(call[0], text) for call in parts["calls"]]

    return change


def calls_anyway(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts |= {"calls": [("get_weather", '{"city":"Beijing"}')]}


def says(text: str | None) -> Change:
    def change(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
        parts["text"] = text

    return change


def breaks_lines(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts["text"] = json.dumps(json.loads(parts["text"]), indent=1)


def in_a_fence(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts["text"] = f"```json\n{parts['text']}\n```"


def flips_reasoning(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts["reasoning"] = None if parts.get("reasoning") else "hm"


def other_field(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts["field"] = "thoughts"


def one_token_more(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts["prompt"] += 4 if entry["checks"]["prompt-tokens"].get("upto") else 1


def wrong_sum(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts["usage"] = {"total_tokens": parts["prompt"]}


def by_name(field: str, last: Any, others: Any) -> Change:
    """The case's last request differs in one ingredient from the others."""

    def change(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
        parts[field] = last if name == entry["names"][-1] else others

    return change


def differences_are_one_off(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    rules = entry["compare"]["prompt-token-difference"]
    if name == (rules if isinstance(rules, list) else [rules])[0]["of"]:
        parts["prompt"] -= 1


def stop_by_itself(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts["finish"] = "content_filter"


def no_error_object(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    if parts.get("refused"):
        parts["envelope"] = False


def other_error_type(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    if parts.get("refused"):
        parts["kind"] = "BadRequestError"


def shrinking_thoughts(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts["reasoning"] = "hm" * (100 - len(parts["reasoning"]))


def content_of_a_cut_thought(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    if name == "cut":
        parts |= {"text": "First", "reasoning": None}


def thinks_when_free_only(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    if name.startswith(entry["compare"]["as-often"]["of"]):
        parts["reasoning"] = None


def in_another_order(parts: dict[str, Any], request: Request, entry: Mapping[str, Any], name: str) -> None:
    parts["text"] = json.dumps(dict(reversed(json.loads(parts["text"]).items())))


NEIGHBOURS: dict[str, list[Change]] = {
    "calls": [answers_in_prose, calls_another_tool, says_stop_with_a_call],
    "called": [answers_in_prose, calls_another_tool],
    "call-count": [answers_in_prose],
    "valid-arguments": [spoils_arguments("[]"), spoils_arguments('{"cut": '), spoils_arguments('"{}"')],
    "arguments-equal": [spoils_arguments('{"door":"south-1"}')],
    "no-calls": [calls_anyway],
    "has-content": [says(""), says(None)],
    "says": [says("something else")],
    "recalls": [says("something else")],
    "key-order": [in_another_order, says("[]")],
    "cut-in-reasoning": [content_of_a_cut_thought],
    "as-often": [thinks_when_free_only],
    "content-json": [says("Here you are: {}"), in_a_fence, says('{"a": NaN}')],
    "content-schema": [says('{"unexpected": 1}'), in_a_fence, says("null")],
    "content-value": [says('{"code":"K-7742","size":12}'), says("{}")],
    "compact": [breaks_lines],
    "reasoning": [flips_reasoning],
    "reasoning-field": [other_field],
    "prompt-tokens": [one_token_more],
    "usage-adds-up": [wrong_sum],
    "finish-reason": [stop_by_itself],
    "error-envelope": [no_error_object],
    "error-type": [other_error_type],
    "same-prompt-tokens": [by_name("prompt", SMALL + 1, SMALL)],
    "prompt-token-difference": [differences_are_one_off],
    "prompt-tokens-grow": [by_name("prompt", SMALL, SMALL)],
    "same-structure": [by_name("finish", "stop", "tool_calls")],
    "same-arguments": [by_name("calls", [("lock_door", '{"door": "n"}')], [("lock_door", '{"door": "m"}')])],
    "distinct-texts": [says("always this")],
    "cached-tokens": [by_name("cached", 0, 64)],
    "reasoning-grows": [shrinking_thoughts],
}
#: told by the transport's head, not by the ingredients here: tests/contract/test_checks.py
ELSEWHERE = {"plain-error"}


@pytest.mark.parametrize("case", CASES)
def test_a_right_endpoint_passes(lab: Any, case: Case) -> None:
    verdict, _ = lab.drive(case, Endpoint(lab, case))
    assert (verdict.outcome, verdict.detail) == (Outcome.PASS, verdict.detail), verdict.detail


@pytest.mark.parametrize(
    "case", [case for case in CASES if any(r["checks"] or r["compare"] for r in case.values[0].inputs["rounds"])]
)
def test_each_wrong_neighbour_fails(lab: Any, case: Case) -> None:
    for entry in case.inputs["rounds"]:
        for check in [name for name in (*entry["checks"], *entry["compare"]) if name not in ELSEWHERE]:
            for change in NEIGHBOURS[check]:
                mine = set(entry["requests"])

                def only_here(parts: dict[str, Any], request: Request, other: Mapping[str, Any], name: str) -> None:
                    if name in mine:  # noqa: B023 - used within the iteration
                        change(parts, request, other, name)  # noqa: B023

                endpoint = Endpoint(lab, case, change if check in entry["compare"] else only_here)
                verdict, _ = lab.drive(case, endpoint)
                assert verdict.outcome is Outcome.FAIL, (check, change, verdict.reason, verdict.detail)


@pytest.mark.parametrize("case", [case for case in CASES if case.values[0].inputs["expect"] == "refused"])
def test_a_request_that_must_be_refused_fails_when_it_is_accepted(lab: Any, case: Case) -> None:
    verdict, _ = lab.drive(case, Endpoint(lab, case, accepts))
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "invalid-request-accepted")


@pytest.mark.parametrize("case", CASES)
def test_a_dead_endpoint_gets_no_verdict(lab: Any, case: Case) -> None:
    verdict, _ = lab.drive(case, lambda request: lab.fails(FaultKind.CONNECT))
    assert verdict.outcome is Outcome.INCONCLUSIVE
