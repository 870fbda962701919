"""A profile that extends another: what it takes over, what it never does, and the errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvv.core import Surface
from kvv.profiles.profile import ProfileError, find_profile, load_profile, parse_profile

BASE = """
title = "Base"
source = "https://example.com/base"
match = ["base-1"]
prices = { input = 1, cached = 1, output = 1 }
context_window = 1000
[thinking]
supported = true
mode = "dial"
[thinking.modes.dial]
on = { dial = 1, keep = true }
off = { dial = 0 }
[claims]
required = false
n = true
[surface.engine.claims]
required = true
"""
CHILD = 'title = "Child"\nsource = "https://example.com/child"\nextends = "base"\n'


def child(more: str = "", surface: Surface = Surface.VENDOR, **texts: str) -> object:
    return parse_profile(CHILD + more, "child.toml", "child", surface, find={"base": BASE, **texts}.get)


def test_a_child_says_only_what_differs() -> None:
    profile = child("[claims]\nn = false\n")
    assert (profile.context_window, profile.claims.required, profile.claims.n) == (1000, False, False)
    assert child(surface=Surface.ENGINE).claims.required is True
    assert child("[surface.engine.claims]\nrequired = false\n", Surface.ENGINE).claims.required is False


def test_names_sources_and_prices_are_never_inherited() -> None:
    profile = child()
    assert (profile.match, profile.prices, profile.title) == ((), None, "Child")
    with pytest.raises(ProfileError, match=r"child\.toml: source: Field required"):
        parse_profile('title = "x"\nextends = "base"\n', "child.toml", "child", find={"base": BASE}.get)


def test_a_mode_that_is_written_anew_takes_no_field_of_the_old_form() -> None:
    profile = child("[thinking.modes.dial]\non = { dial = 2 }\n")
    assert profile.thinking_body(on=True, effort=None) == {"dial": 2}
    assert profile.thinking_body(on=False, effort=None) == {}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"base": CHILD.replace('"base"', '"child"')}, "child extends base extends child, which is a circle"),
        ({"base": CHILD}, "child extends base extends base, which is a circle"),
        ({"base": CHILD.replace('"base"', '"nobody"')}, "base.toml: extends: no profile 'nobody'"),
        ({"base": "title = "}, "base.toml: "),
        ({"base": CHILD.replace('"base"', "7")}, "base.toml: extends: must be the id of a profile"),
    ],
)
def test_a_circle_or_an_unknown_parent_is_one_line(texts: dict[str, str], words: str) -> None:
    with pytest.raises(ProfileError) as error:
        child(**texts)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_of_the_users_own_extends_a_shipped_profile(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('title = "Mine"\nsource = "https://example.com"\nextends = "kimi-k3"\ncontext_window = 9000\n')
    mine, theirs = find_profile(str(file)), load_profile("kimi-k3")
    assert (mine.id, mine.context_window, mine.match) == ("mine", 9000, ())
    assert (mine.claims, mine.decoding, mine.tokens) == (theirs.claims, theirs.decoding, theirs.tokens)


def test_an_unknown_claim_at_second_hand_is_named() -> None:
    with pytest.raises(ProfileError, match="second_hand: no claim is called 'requird'"):
        child('[claims]\nsecond_hand = ["requird"]\n')
