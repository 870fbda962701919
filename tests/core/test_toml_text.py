"""TOML from others: what takes for ever or breaks the parser is refused in one line, all else is as tomllib says."""

from __future__ import annotations

import time
import tomllib

import pytest

from kvv.core.toml_text import PARTS, TomlError, parse_toml
from kvv.profiles.policy import PolicyError, parse_policy
from kvv.profiles.profile import ProfileError, parse_profile

LONG = {
    "plain": "a." * 20_000 + "a = 1",
    "spaced": "a . " * 20_000 + "a = 1",
    "quoted": '"a".' * 20_000 + "a = 1",
    "header": "[" + "a." * 20_000 + "a]",
    "inline": "x = {" + "a." * 20_000 + "a = 1}",
}
DEEP = {"arrays": "x = " + "[" * 50_000, "tables": "x = " + "{a=" * 50_000}


@pytest.mark.parametrize("text", [*LONG.values(), *DEEP.values()], ids=[*LONG, *DEEP])
def test_what_takes_square_time_or_stack_is_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(TomlError, match=r"more than 100 parts|nested too deep") as error:
        parse_toml(text)
    assert "\n" not in str(error.value)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("text", ["a" * 1_000_000 + " = 1", "# " + "a-" * 500_000, "x = '" + "." * 500_000 + "'"])
def test_long_texts_that_are_no_such_key_are_read(text: str) -> None:
    started = time.process_time()
    assert parse_toml(text) == tomllib.loads(text)
    assert time.process_time() - started < 4


def test_a_key_of_as_many_parts_as_are_allowed_is_read() -> None:
    assert parse_toml(".".join(["a"] * PARTS) + " = 1")
    with pytest.raises(TomlError):
        parse_toml("b = = 1")


@pytest.mark.parametrize("text", [LONG["plain"], *DEEP.values()])
def test_policies_and_profiles_are_refused_as_usage_errors(text: str) -> None:
    with pytest.raises(PolicyError):
        parse_policy(text, "p.toml")
    with pytest.raises(ProfileError):
        parse_profile(text, "p.toml", "p")
