"""From measurements to a profile: what becomes a rule, what stays evidence, and what only a signature makes a must."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from kvv.cases.suite import Context, Settings, load_suite
from kvv.core import Level, Surface
from kvv.profiles.calibration import is_rule, merge, merge_failures, profile_table
from kvv.profiles.profile import Calibrated, Measured, Profile, load_profile

FIRST = datetime(2026, 11, 29, 12, tzinfo=UTC)
SECOND = FIRST + timedelta(days=1)


def fact(name: str, answered: int, *, obeyed: int | None = None, second: datetime = SECOND, **more: Any) -> Measured:
    rounds = (FIRST, second)
    return Measured(fact=name, asked=6, answered=answered, obeyed=obeyed, rounds=rounds, **more)


def calibrated(*evidence: Measured, **more: Any) -> Calibrated:
    fields = {"base_url": "https://example.com/v1", "model": "m", "kvv": "1", "expires": date(2027, 1, 29)}
    return Calibrated(**{**fields, "evidence": evidence, **more})


def measured(*evidence: Measured, base: str = "glm-4.6", surface: Surface = Surface.VENDOR, **more: Any) -> Profile:
    """The profile that the file says."""
    import tomli_w

    from kvv.profiles.profile import parse_profile

    table = profile_table(load_profile(base), calibrated(*evidence), extends=base)
    table["calibrated"] |= more
    return parse_profile(tomli_w.dumps(table), "m.toml", "m", surface)


@pytest.mark.parametrize(("hours", "rule"), [(0, False), (19.9, False), (20, True), (48, True)])
def test_only_what_was_measured_on_another_day_is_a_rule(hours: float, rule: bool) -> None:
    second = FIRST + timedelta(hours=hours)
    assert is_rule((FIRST, second)) is rule
    profile = measured(fact("claims/n", 6, obeyed=6, second=second))
    assert profile.claims.n is rule
    assert not is_rule(())


@pytest.mark.parametrize(
    ("answered", "kind"), [(6, "accepted"), (0, "rejected"), (5, "either"), (1, "either")], ids=str
)
def test_a_parameter_is_what_every_round_says_and_either_where_they_differ(answered: int, kind: str) -> None:
    profile = measured(fact("parameters/top_p-0.3", answered, fields={"top_p": 0.3}))
    found = {name for name in ("accepted", "either", "rejected") if {"top_p": 0.3} in getattr(profile.decoding, name)}
    assert found == {kind}
    assert ({"top_p": 0.3} in profile.decoding.warned) == (kind != "either")
    assert {"temperature": 2.5} in profile.decoding.rejected, "what was not probed is the extended profile's"


def test_a_value_that_the_official_endpoint_takes_is_no_longer_refused() -> None:
    profile = measured(fact("parameters/temperature-2.5", 6, fields={"temperature": 2.5}))
    assert {"temperature": 2.5} not in profile.decoding.rejected
    assert {"temperature": 2.5} in profile.decoding.accepted


def test_a_claim_needs_every_answer_to_obey_and_is_withdrawn_where_one_does_not() -> None:
    assert measured(fact("claims/json_object", 6, obeyed=6)).claims.json_object is True
    assert measured(fact("claims/json_object", 6, obeyed=5)).claims.json_object is False
    assert measured(fact("claims/json_object", 5, obeyed=5)).claims.json_object is False


def test_what_is_obeyed_without_thinking_alone_is_claimed_so() -> None:
    refused = fact("claims/required/thinking-on", 0, obeyed=0)
    profile = measured(refused, fact("claims/required/thinking-off", 6, obeyed=6))
    assert (profile.claims.required, profile.claims.not_thinking) == (True, ("required",))


def test_limits_overheads_and_switches_are_read() -> None:
    profile = measured(
        fact("limits/stop/4", 6),
        fact("limits/stop/5", 0),
        fact("limits/window", 0, values=(65_536,)),
        fact("tokens/auto", 6, values=(100,)),
        fact("tokens/required", 6, values=(136,)),
        fact("tokens/none", 6, values=(138, 139)),
        fact("thinking/kimi/on", 6, obeyed=6, texts=("reasoning",)),
        fact("thinking/kimi/off", 6, obeyed=0),
        fact("thinking/opensource/on", 6, obeyed=6, texts=("reasoning",)),
        fact("thinking/opensource/off", 6, obeyed=6),
    )
    assert (profile.decoding.stop_limit, profile.context_window) == (4, 65_536)
    assert (profile.tokens.required_note, profile.tokens.none_note) == (36, None)
    assert (profile.thinking.mode, profile.thinking.fields) == ("opensource", ("reasoning",))


def test_a_model_that_never_reasons_is_not_switched() -> None:
    profile = measured(
        fact("thinking/kimi/on", 6, obeyed=0), fact("thinking/kimi/off", 6, obeyed=6), fact("thinking/default", 6)
    )
    assert (profile.thinking.supported, profile.thinking.mode) == (False, "none")


def test_measurements_add_up_and_a_failure_that_is_over_goes() -> None:
    one = Measured(fact="claims/n", asked=3, answered=3, obeyed=2, values=(1,), rounds=(FIRST,))
    two = Measured(fact="claims/n", asked=2, answered=1, obeyed=1, values=(2,), rounds=(SECOND,))
    (both,) = merge([one], [two])
    assert (both.asked, both.answered, both.obeyed, both.values) == (5, 4, 3, (1, 2))
    assert both.rounds == (FIRST, SECOND)
    first = merge_failures((), ["a", "b"], ["a", "b", "c"], FIRST)
    second = merge_failures(first, ["a"], ["a", "b"], SECOND)
    assert [(one.id, one.seen, one.rounds) for one in second] == [("a", 2, (FIRST, SECOND))]
    assert [one.id for one in merge_failures(first, [], ["c"], SECOND)] == ["a", "b"], "not asked again"


SIGNED = {"signed_by": "A. Person", "signed_on": date(2026, 12, 1)}


@pytest.mark.parametrize(
    ("more", "today", "level"),
    [
        ({}, date(2026, 12, 1), Level.SHOULD),
        ({"signed_by": "A. Person"}, date(2026, 12, 1), Level.SHOULD),
        (SIGNED, date(2026, 12, 1), Level.MUST),
        (SIGNED, date(2027, 1, 29), Level.MUST),
        (SIGNED, date(2027, 1, 30), Level.SHOULD),
        ({**SIGNED, "signed_by": "  "}, date(2026, 12, 1), Level.SHOULD),
    ],
    ids=["unsigned", "no-day", "signed", "last-day", "expired", "blank"],
)
def test_vendors_are_warned_until_a_person_signs_and_after_the_file_expires(
    more: dict[str, Any], today: date, level: Level
) -> None:
    evidence = (
        fact("claims/required", 6, obeyed=6),
        fact("parameters/top_p-0.3", 0, fields={"top_p": 0.3}),
        fact("parameters/top_p-0.4", 6, fields={"top_p": 0.4}),
    )
    context = Context(model="m", profile=measured(*evidence, **more).as_of(today), settings=Settings())
    cases = [*load_suite("tool_choice").cases(context), *load_suite("params").cases(context)]
    for name in ("tool_choice/required/fitting", "params/rejected/top-p-0.3", "params/accepted/top-p-0.4"):
        assert {case.level for case in cases if case.id.startswith(f"{name}/")} == {level}, name


def test_a_signature_makes_no_must_of_what_was_not_measured_and_none_for_bare_engines() -> None:
    only_claim = measured(fact("claims/required", 6, obeyed=6), **SIGNED).as_of(date(2026, 12, 1))
    assert only_claim.decoding.reject_level is Level.SHOULD
    parameter = fact("parameters/top_p-0.3", 0, fields={"top_p": 0.3})
    engine = measured(parameter, surface=Surface.ENGINE, **SIGNED).as_of(date(2026, 12, 1))
    assert engine.decoding.reject_level is Level.SHOULD
