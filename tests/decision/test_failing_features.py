"""A feature that is dead beside others that live is a verdict; an outage, a pace and chance are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from kvv.core import Outcome
from kvv.decision.features import FeatureRate, FeatureRequest, failing_features, feature_gates

Fails = Callable[[int, frozenset[str]], str]


def asked(shapes: Sequence[str], fails: Fails, **more: Any) -> list[FeatureRequest]:
    """One request a second for each shape (features between blanks); ``fails`` gives the failure, "" for none."""
    made = []
    for number, shape in enumerate(shapes):
        features = frozenset(shape.split())
        failure = fails(number, features)
        fields = {name: value if failure else False for name, value in more.items()}
        made.append(
            FeatureRequest(
                exchange=f"c{number}#0/0.0.probe",
                case=f"c{number}",
                started=f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}",
                features=features,
                failure=failure,
                **fields,
            )
        )
    return made


def has(name: str) -> Fails:
    return lambda _, features: "http-500" if name in features else ""


def found(requests: Sequence[FeatureRequest]) -> dict[str, FeatureRate]:
    return {rate.feature: rate for rate in failing_features(requests)}


MODES = ["streamed", "whole"]


def test_a_dead_stream_mode_is_named_with_its_controls() -> None:
    [rate] = failing_features(asked(MODES * 200, has("streamed")))
    assert rate.feature == "streamed"
    assert rate.sentence == "0 of 200 streamed requests were answered, 200 of 200 whole ones were (http-500 x200)"
    assert rate.interval[0] == pytest.approx(0.025 ** (1 / 200))
    [gate] = feature_gates([rate], 0.01)
    assert (gate.id, gate.decision) == ("failures/streamed", Outcome.FAIL)
    assert gate.reason.startswith("fails-by-feature: 0 of 200 streamed requests")


def test_six_of_six_beside_answered_requests_are_enough_and_five_are_not() -> None:
    shapes = [("streamed tools" if number % 6 == 3 else MODES[number % 2]) for number in range(36)]
    assert "tools" in found(asked(shapes, has("tools")))
    assert not found(asked(shapes[:30], has("tools")))


def test_the_very_feature_is_named_and_nothing_that_comes_with_it() -> None:
    shapes = ["streamed", "whole", "streamed tools", "whole tools tool_choice=required tool_choice", "whole seed"] * 40
    assert set(found(asked(shapes, has("tools")))) == {"tools"}
    assert set(found(asked(shapes, has("tool_choice=required")))) == {"tool_choice=required"} or set(
        found(asked(shapes, has("tool_choice")))
    ) == {"tool_choice"}

    def both(_: int, features: frozenset[str]) -> str:
        return "cut" if {"streamed", "tools"} <= features else ""

    assert set(found(asked(shapes, both))) == {"streamed+tools"}


@pytest.mark.parametrize(
    "fails",
    [
        lambda number, _: "http-500",
        lambda number, _: "reset" if 100 <= number < 260 else "",
        lambda number, _: "http-503" if number % 3 == 0 else "",
        lambda number, features: "http-500" if 100 <= number < 140 and "streamed" in features else "",
    ],
    ids=["all-dead", "outage", "one-in-three", "one-short-stretch"],
)
def test_what_hits_both_modes_or_one_moment_accuses_no_feature(fails: Fails) -> None:
    shapes = MODES * 200
    rates = found(asked(shapes, fails))
    # a stretch of one mode alone is separate failures beside answered controls: that one is a feature
    assert set(rates) == ({"streamed"} if fails(101, frozenset(["streamed"])) != fails(101, frozenset()) else set())


def test_an_outage_while_only_tools_are_asked_accuses_no_tools() -> None:
    shapes = ["whole"] * 300 + ["whole tools"] * 300 + ["whole"] * 300
    assert not found(asked(shapes, lambda number, _: "reset" if 290 <= number < 610 and number % 2 else ""))
    assert not found(asked(shapes, lambda number, _: "reset" if 300 <= number < 600 else ""))


def test_a_flaky_feature_is_a_rate_that_the_policy_bounds() -> None:
    rng = np.random.default_rng(5)
    drawn = rng.random(4000)
    rates = found(asked(MODES * 2000, lambda n, has: "cut" if "streamed" in has and drawn[n] < 0.05 else ""))
    rate = rates["streamed"]
    assert 0.035 < rate.failed / rate.asked < 0.065
    assert rate.interval[0] < 0.05 < rate.interval[1]
    assert feature_gates([rate], 0.01)[0].decision is Outcome.FAIL
    assert feature_gates([rate], 0.20)[0].decision is Outcome.SKIP


def test_alike_failures_accuse_a_feature_in_fewer_than_one_run_of_a_hundred() -> None:
    """Ten features, a tenth of all requests failing at random; the family's chance is one in a thousand."""
    names = [f"f{number}" for number in range(10)]
    accused = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        shapes = [" ".join([MODES[int(rng.integers(2))], *rng.choice(names, 3, replace=False)]) for _ in range(400)]
        drawn = rng.random(400)
        accused += bool(found(asked(shapes, lambda n, _, drawn=drawn: "http-503" if drawn[n] < 0.1 else "")))
    assert accused == 0


def test_429_is_pace_unless_no_request_with_the_feature_gets_anything_else() -> None:
    always = asked(
        ["whole tools", "whole", "streamed"] * 40, lambda _, f: "http-429" if "tools" in f else "", pace=True
    )
    assert set(found(always)) == {"tools"}
    one_answered = [
        FeatureRequest(exchange="x", case="x", started="2026-01-01T00:00:30", features=frozenset(["whole", "tools"])),
        *always,
    ]
    assert not found(one_answered)
    long = asked(["whole long-prompt", "whole"] * 40, lambda _, f: "http-429" if "long-prompt" in f else "", pace=True)
    assert not found(long)


def test_what_we_gave_up_on_counts_only_where_nothing_with_the_feature_was_answered() -> None:
    def hangs(number: int, features: frozenset[str]) -> str:
        return "first-byte-timeout" if "images" in features and number % 4 else ""

    shapes = ["whole images", "whole"] * 60
    assert set(found(asked(shapes, lambda _, f: "idle-timeout" if "images" in f else "", slow=True))) == {"images"}
    assert not found(asked([*shapes, "whole"] * 2, hangs, slow=True))


def test_what_must_be_refused_says_nothing_of_its_fields() -> None:
    shapes = ["whole temperature invalid", "whole temperature", "streamed"] * 40
    rates = found(asked(shapes, has("invalid")))
    assert set(rates) == {"invalid"}
    assert "0 of 40 requests that must be refused got an answer, 80 of 80 valid ones were" in rates["invalid"].sentence


def test_short_outages_while_mostly_one_feature_is_asked_accuse_nothing() -> None:
    """Suites are asked one after the other, so that a feature has most of a time to itself; five outages a run."""
    phases = [(150, "", 0.0), (200, "tools", 0.9), (100, "response_format", 0.7), (80, "images", 0.9)]
    accused = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        shapes = [
            f"{MODES[int(rng.integers(2))]} {name if rng.random() < share else ''}"
            for count, name, share in phases
            for _ in range(count)
        ]
        fails = rng.random(len(shapes)) < 0.01
        for begin, length in zip(rng.integers(len(shapes), size=5), rng.integers(5, 25, size=5), strict=True):
            fails[begin : begin + length] = True
        accused += found(asked(shapes, lambda n, _, fails=fails: "reset" if fails[n] else ""))
    assert accused == []
