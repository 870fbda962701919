"""Cases of several requests: comparisons, rates, scripts."""

from __future__ import annotations

from typing import Any

import pytest

from kvv.core import FaultKind, Outcome, Request

COMPARED = """
[[case]]
id = "x"
requirement = "r"
variants = { a = { body = { seed = 1 } }, b = { body = { seed = 2 } } }
compare = { prompt-token-difference = { of = "b", minus = "a", is = 21 } }
"""
RATE = """
[[case]]
id = "x"
requirement = "r"
samples = 8
at-least = 0.9
checks = { says = "yes" }
"""
SCRIPT = """
[[case]]
id = "x"
requirement = "r"
rounds = [
    { name = "call", body = { tools = [] }, checks = { calls = ["f", "g"] } },
    { name = "reply", messages = ["@hi", { "@answer" = "call" }, "@results-of-the-call"], checks = { says = "done" } },
]
[snippets]
hi = { role = "user", content = "hi" }
results-of-the-call = { "@results" = { of = "call", order = "reversed", contents = { f = "F!" } } }
"""


def name_of(request: Request) -> str:
    return request.purpose.partition(":")[2]


# --- comparisons -----------------------------------------------------------------------------------


def test_variants_are_asked_in_one_step_and_compared(lab: Any) -> None:
    verdict, asked = lab.drive(lab.only(COMPARED), lambda request: lab.counts({"a": 50, "b": 71}[name_of(request)]))
    assert (verdict.outcome, len(asked)) == (Outcome.PASS, 2)
    assert [request.body["seed"] for request in asked] == [1, 2]


@pytest.mark.parametrize("wrong", [70, 72, 50])
def test_a_wrong_difference_is_asked_once_more_and_fails(lab: Any, wrong: int) -> None:
    verdict, asked = lab.drive(lab.only(COMPARED), lambda request: lab.counts({"a": 50, "b": wrong}[name_of(request)]))
    assert (verdict.outcome, verdict.reason, len(asked)) == (Outcome.FAIL, "prompt-token-difference", 4)


def test_a_refused_variant_is_judged_when_refused_twice(lab: Any) -> None:
    def endpoint(request: Request) -> Any:
        refused = name_of(request) == "b" and not request.purpose.startswith("between")
        return lab.refuses(message="unknown field") if refused else lab.counts(50)

    verdict, asked = lab.drive(lab.only(COMPARED), endpoint)
    assert (verdict.outcome, verdict.reason, verdict.detail) == (
        Outcome.FAIL,
        "valid-request-refused",
        "b: unknown field",
    )
    assert [request.purpose for request in asked] == ["probe:a", "probe:b", "confirm:b", "between:b"]


def test_one_variant_without_an_answer_leaves_the_comparison_open(lab: Any) -> None:
    def endpoint(request: Request) -> Any:
        return lab.fails(FaultKind.CONNECT) if name_of(request) == "b" else lab.counts(50)

    verdict, _ = lab.drive(lab.only(COMPARED), endpoint)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "connect")


def test_a_variant_that_crashes_three_times_between_controls_fails(lab: Any) -> None:
    def endpoint(request: Request) -> Any:
        return (
            lab.status(500) if name_of(request) == "b" and not request.purpose.startswith("between") else lab.counts(50)
        )

    verdict, asked = lab.drive(lab.only(COMPARED), endpoint)
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "reproducible-500")
    assert [request.purpose for request in asked].count("between:b") == 3


def test_a_sequence_is_asked_one_after_the_other_and_a_loss_must_repeat(lab: Any) -> None:
    text = COMPARED.replace(
        'compare = { prompt-token-difference = { of = "b", minus = "a", is = 21 } }', "sequence = true"
    ).replace("sequence = true", 'sequence = true\ncompare = { cached-tokens = { of = "b", at-least-of = "a" } }')
    steady, asked = lab.drive(lab.only(text), lambda request: lab.counts(500, cached=256))
    assert (steady.outcome, [request.purpose for request in asked]) == (Outcome.PASS, ["probe:a", "probe:b"])
    lost, _ = lab.drive(lab.only(text), lambda request: lab.counts(500, cached=256 if name_of(request) == "a" else 0))
    assert (lost.outcome, lost.reason) == (Outcome.FAIL, "cache-lost")
    left = iter([256, 0, 256])
    once, _ = lab.drive(lab.only(text), lambda request: lab.counts(500, cached=next(left)))
    assert (once.outcome, once.reason) == (Outcome.INCONCLUSIVE, "cache-lost-once")
    cold, _ = lab.drive(lab.only(text), lambda request: lab.counts(500, cached=0))
    assert (cold.outcome, cold.reason) == (Outcome.PASS, "no-cache-hit")


# --- rates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("good", "outcome", "reason"),
    [
        (8, Outcome.PASS, ""),
        (7, Outcome.INCONCLUSIVE, "rate-unclear"),
        (4, Outcome.FAIL, "rate-too-low"),
        (0, Outcome.FAIL, "rate-too-low"),
    ],
)
def test_a_rate_is_judged_from_all_samples_with_its_exact_interval(
    lab: Any, good: int, outcome: Outcome, reason: str
) -> None:
    verdict, asked = lab.drive(
        lab.only(RATE), lambda request: lab.says("yes" if int(name_of(request)[7:]) <= good else "no")
    )
    assert (verdict.outcome, verdict.reason, len(asked)) == (outcome, reason, 8)
    assert verdict.values["rate"] == good / 8
    assert verdict.facts["samples"] == [1] * good + [0] * (8 - good)
    assert ("more samples at this rate would settle it" in verdict.detail) is (outcome is Outcome.INCONCLUSIVE)


def test_samples_without_an_answer_count_against_a_pass_and_for_the_vendor_in_a_fail(lab: Any) -> None:
    def endpoint(good: int) -> Any:
        return lambda request: lab.fails(FaultKind.CONNECT) if int(name_of(request)[7:]) > good else lab.says("yes")

    verdict, _ = lab.drive(lab.only(RATE), endpoint(7))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "rate-unclear")
    assert verdict.facts["samples"] == [1] * 7 + [None]
    assert "answers to the 1 that could not tell would settle it" in verdict.detail
    nothing, _ = lab.drive(lab.only(RATE), endpoint(0))
    assert (nothing.outcome, nothing.reason) == (Outcome.INCONCLUSIVE, "no-sample-told")


def test_an_upper_bound_of_a_rate(lab: Any) -> None:
    case = lab.only(RATE.replace("at-least = 0.9", "at-most = 0.1"))
    assert lab.drive(case, lambda request: lab.says("no"))[0].outcome is Outcome.PASS
    assert lab.drive(case, lambda request: lab.says("yes"))[0].reason == "rate-too-high"


def test_a_sample_that_is_cut_can_not_tell(lab: Any) -> None:
    verdict, _ = lab.drive(lab.only(RATE), lambda request: lab.says("well", finish="length"))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "no-sample-told")


# --- scripts --------------------------------------------------------------------------------------


def test_a_script_sends_back_what_the_endpoint_sent(lab: Any) -> None:
    def endpoint(request: Request) -> Any:
        if name_of(request) == "call":
            return lab.says(
                None, calls=[("f", '{"a": 1}', "id-1"), ("g", "{}", "id-2")], reasoning="hm", field="reasoning"
            )
        return lab.says("done")

    verdict, asked = lab.drive(lab.only(SCRIPT), endpoint)
    assert verdict.outcome is Outcome.PASS
    _, said, second, first = asked[1].body["messages"]
    assert said == {
        "role": "assistant",
        "content": None,
        "reasoning": "hm",
        "tool_calls": [
            {"id": "id-1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
            {"id": "id-2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
    assert (second["tool_call_id"], first["tool_call_id"], first["content"]) == ("id-2", "id-1", "F!")


def test_a_script_stops_at_the_round_that_fails(lab: Any) -> None:
    verdict, asked = lab.drive(lab.only(SCRIPT), lambda request: lab.says("no tool for me"))
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "no-call")
    assert {name_of(request) for request in asked} == {"call"}


def test_a_script_that_cannot_go_on_is_inconclusive(lab: Any) -> None:
    case = lab.only(SCRIPT.replace(', checks = { calls = ["f", "g"] } }', " }"))
    verdict, _ = lab.drive(case, lambda request: lab.says("no tool for me"))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "no-call-to-answer")


def test_a_round_of_variants_sees_the_answers_before_it(lab: Any) -> None:
    case = lab.only(
        """
[[case]]
id = "x"
requirement = "r"
rounds = [
    { name = "ask" },
    { name = "history", variants = { without = {}, with = { messages = ["@thoughtful"] } }, compare = "@" },
]
[snippets]
thoughtful = { "@thought" = { like = "ask", content = "c", reasoning = "r" } }
""".replace('"@"', '{ prompt-token-difference = { of = "with", minus = "without", at-least = 5 } }')
    )

    def endpoint(gain: int, reasoning: str | None) -> Any:
        def answer(request: Request) -> Any:
            found = lab.counts(40 + (gain if name_of(request) == "with" else 0))
            return lab.says("x", reasoning=reasoning, field="reasoning") if name_of(request) == "ask" else found

        return answer

    verdict, asked = lab.drive(case, endpoint(5, "hm"))
    assert verdict.outcome is Outcome.PASS
    assert asked[-1].body["messages"] == [{"role": "assistant", "content": "c", "reasoning": "r"}]
    assert lab.drive(case, endpoint(0, "hm"))[0].reason == "prompt-token-difference"
    assert lab.drive(case, endpoint(5, None))[0].reason == "no-reasoning-seen"


def test_raw_text_is_sent_as_it_stands(lab: Any) -> None:
    text = '[[case]]\nid = "x"\nrequirement = "r"\nexpect = "refused"\n'
    case = lab.only(text + 'raw = { "@join" = ["{\\"model\\": ", { "@json" = "@model" }, ","] }\n')
    verdict, asked = lab.drive(case, lambda request: lab.says() if request.purpose == "control" else lab.refuses())
    assert (verdict.outcome, asked[0].body) == (Outcome.PASS, b'{"model": "m",')
