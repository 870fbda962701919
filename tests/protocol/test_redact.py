"""No form of a secret survives, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
import re
import string
import time
from itertools import pairwise
from urllib.parse import quote, quote_plus, urlsplit

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvv.core import Choice, Observation, Shape
from kvv.protocol.redaction.redactor import MARK, MAX_DEPTH, PLACEHOLDERS, Detector, Redactor, redact_url

KEY = "sk-live-4f9Kq2Zt7Wb1"
PRINTABLE = st.text(string.ascii_letters + string.digits + string.punctuation, min_size=8, max_size=40)


@settings(deadline=None)
@given(
    key=PRINTABLE,
    before=st.text(max_size=20),
    after=st.text(max_size=20),
    form=st.sampled_from(["raw", "json", "json twice", "json slash", "url", "url plus", "url lower", "html"]),
)
def test_no_form_of_the_key_survives(key: str, before: str, after: str, form: str) -> None:
    written = {
        "raw": key,
        "json": json.dumps(key)[1:-1],
        "json twice": json.dumps(json.dumps(key)[1:-1])[1:-1],
        "json slash": json.dumps(key)[1:-1].replace("/", "\\/"),
        "url": quote(key, safe=""),
        "url plus": quote_plus(key),
        "url lower": re.sub("%..", lambda found: found[0].lower(), quote(key, safe="")),
        "html": html.escape(key),
    }[form]
    assume(len(set(key)) > 4 and key.lower() not in PLACEHOLDERS and key not in MARK)
    clean = Redactor([key]).data(f"{before} {written} {after}".encode("utf-8", "surrogatepass"))
    assert written.encode() not in clean
    assert MARK.encode() in clean


@given(
    key=st.text(string.ascii_letters + string.digits + "-_", min_size=6, max_size=60),
    user=st.text(string.ascii_lowercase, max_size=7),
)
def test_base64_of_user_and_key_is_hidden_at_every_alignment(key: str, user: str) -> None:
    assume(len(set(key)) > 4 and not set(key) & set(user) and key.lower() not in PLACEHOLDERS and key not in MARK)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        token = encode(f"{user}:{key}".encode()).decode()
        clean = Redactor([key]).text(f"Basic {token}!")
        assert MARK in clean
        assert clean.endswith("!")
        rest = clean.removeprefix("Basic ").partition(MARK)[0]
        assert len(rest) <= len(user) * 4 / 3 + 4
        assert token[-8:] not in clean


@given(st.text(max_size=300))
def test_text_without_a_secret_comes_back_as_the_same_object(text: str) -> None:
    redactor = Redactor([KEY])
    data = text.encode("utf-8", "surrogatepass")
    assert redactor.text(text) is text
    assert redactor.data(data) is data


def test_json_stays_json() -> None:
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}. Check it."}})
    assert json.loads(Redactor([KEY]).text(body)) == {
        "error": {"message": f"Incorrect API key provided: {MARK}. Check it."}
    }


def test_a_bearer_token_is_hidden_and_the_scheme_stays() -> None:
    assert Redactor([KEY]).text(f"Authorization: Bearer {KEY}") == f"Authorization: Bearer {MARK}"


@pytest.mark.parametrize("length", [len(KEY) - 1, 12, 8])
def test_the_beginning_of_a_key_left_by_a_cut_is_hidden(length: int) -> None:
    assert Redactor([KEY]).data(b'{"message":"' + KEY[:length].encode()) == b'{"message":"' + MARK.encode()


def test_a_common_prefix_in_mid_text_is_left_alone() -> None:
    text = "keys begin with sk-live- as you know"
    assert Redactor([KEY]).text(text) is text or Redactor([KEY]).text(text) == text


def test_the_longer_of_two_keys_is_hidden_whole() -> None:
    assert Redactor(["secret-key", "secret-key-long"]).text("a secret-key-long, a secret-key") == f"a {MARK}, a {MARK}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the kvv1 key", f"the {MARK} key"),
        ("kvv1", MARK),
        ('"kvv1"', f'"{MARK}"'),
        ("kvv12", "kvv12"),
        ("akvv1", "akvv1"),
        ("x-kvv1", "x-kvv1"),
    ],
)
def test_a_short_secret_is_hidden_only_as_a_whole_token(text: str, expected: str) -> None:
    assert Redactor(["kvv1"]).text(text) == expected


@pytest.mark.parametrize("key", ["", "EMPTY", "none", "dummy", "no-key", "42", "sk-no-key-required", None])
def test_a_placeholder_is_no_secret(key: str | None) -> None:
    text = f"an answer with {key} and 42 in it, EMPTY, none"
    assert Redactor([key]).text(text) is text


def test_nested_values_are_scrubbed_keys_included_and_the_rest_is_shared() -> None:
    clean = {"a": [1, None, "text"]}
    value = {"x": [KEY, (KEY.encode(), 1.5)], KEY: True, "clean": clean}
    scrubbed = Redactor([KEY]).value(value)
    assert scrubbed == {"x": [MARK, (MARK.encode(), 1.5)], MARK: True, "clean": clean}
    assert scrubbed["clean"] is clean
    assert Redactor([KEY]).value(clean) is clean


def test_frozen_dataclasses_are_scrubbed() -> None:
    observation = Observation(shape=Shape.COMPLETION, choices=(Choice(answer=f"it is {KEY}"),))
    assert Redactor([KEY]).value(observation).answer == f"it is {MARK}"
    untouched = Observation(shape=Shape.EMPTY)
    assert Redactor([KEY]).value(untouched) is untouched


def test_a_value_nested_too_deep_is_replaced_not_followed() -> None:
    deep: object = KEY
    for _ in range(5_000):
        deep = [deep]
    scrubbed = repr(Redactor([KEY]).value(deep))
    assert KEY not in scrubbed
    assert scrubbed.count("[") <= MAX_DEPTH + 2


def test_the_repr_holds_no_secret() -> None:
    assert KEY not in repr(Redactor([KEY]))


# --- character by character -------------------------------------------------------------------------

WAYS = {
    "plain": lambda c: c,
    "json": lambda c: f"\\u{ord(c):04x}",
    "json upper": lambda c: f"\\u{ord(c):04X}",
    "json twice": lambda c: f"\\\\u{ord(c):04x}",
    "json thrice": lambda c: f"\\\\\\\\u{ord(c):04X}",
    "url": lambda c: f"%{ord(c):02X}",
    "url lower": lambda c: f"%{ord(c):02x}",
    "url twice": lambda c: f"%25{ord(c):02X}",
    "html": lambda c: f"&#{ord(c)};",
    "html long": lambda c: f"&#0{ord(c)};",
    "html hex": lambda c: f"&#x{ord(c):x};",
    "html hex upper": lambda c: f"&#X{ord(c):X};",
}
ONE_KEY = st.text(string.ascii_letters + string.digits + "-_./+=~:", min_size=8, max_size=60)


@given(
    key=ONE_KEY,
    ways=st.lists(st.sampled_from(sorted(WAYS)), min_size=1, max_size=8),
    before=st.text(max_size=20),
    at=st.integers(0, 40_000),
)
def test_no_mix_of_plain_and_escaped_characters_survives(key: str, ways: list[str], before: str, at: int) -> None:
    assume(len(set(key)) > 4 and key.lower() not in PLACEHOLDERS and key not in MARK)
    written = "".join(WAYS[ways[number % len(ways)]](character) for number, character in enumerate(key))
    data = f"{before} {written} after".encode("utf-8", "surrogatepass")
    redactor = Redactor([key])
    clean = redactor.data(data)
    assert written.encode() not in clean
    assert MARK.encode() in clean
    assert clean.endswith(b" after")
    assert MARK in redactor.text(f"x {written} y")
    assert redactor.suspects(f"x {written} y")
    detector = Detector(redactor)
    stream = b"x" * at + b" " + written.encode() + b" " + b"y" * 20_000
    for start in range(0, len(stream), 700):
        detector.feed(stream[start : start + 700])
    assert detector.found


@pytest.mark.parametrize("ways", [["json", "json upper"], ["url"], ["html hex"], ["html"]])
def test_base64_with_its_own_signs_escaped_is_hidden(ways: list[str]) -> None:
    key = "sk-??>>~~??>>~~aBcD"
    token = base64.b64encode(key.encode()).decode()
    assert set("+/") & set(token)
    written = "".join(c if c.isalnum() else WAYS[ways[n % len(ways)]](c) for n, c in enumerate(token))
    clean = Redactor([key]).text(f'{{"message":"{written}"}}')
    assert MARK in clean
    assert written[:12] not in clean


@pytest.mark.parametrize(
    "text", ["100% of \\u003cthis\\u003e &#115;&#107; is %73%6B no key", "\\u0073\\u006b-liv", "%", "&#", "\\u00"]
)
def test_escapes_that_are_no_key_are_left_as_they_are(text: str) -> None:
    assert Redactor([KEY]).text(text) is text
    assert Redactor([KEY]).data(text.encode()) == text.encode()


# --- messages and URLs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.vendor.test/v1", "https://api.vendor.test/v1"),
        ("https://user:pass@api.vendor.test:8443/v1", "https://api.vendor.test:8443/v1"),
        ("https://token@api.vendor.test/v1", "https://api.vendor.test/v1"),
        ("https://a:b@c@host/p", "https://host/p"),
        ("https://host/v1?key=abc&api-version=1", f"https://host/v1?key={MARK}&api-version={MARK}"),
        ("https://host/v1?abc", f"https://host/v1?{MARK}"),
        ("https://host/v1#abc", f"https://host/v1#{MARK}"),
        ("https://host/v1?a=b#c", f"https://host/v1?a={MARK}#{MARK}"),
        ("https://host/v1?a=b@c", f"https://host/v1?a={MARK}"),
        ("http://[::1", "http://[::1"),
        ("", ""),
    ],
)
def test_a_url_loses_userinfo_and_query_values(url: str, expected: str) -> None:
    assert redact_url(url) == expected


@given(st.text(max_size=200))
def test_redact_url_never_raises(text: str) -> None:
    redact_url(text)
    Redactor([KEY]).message(text)


def test_a_redacted_url_still_parses() -> None:
    assert urlsplit(redact_url("https://u:p@host:1/v1?a=b")).hostname == "host"


def test_a_message_loses_urls_credentials_even_of_unknown_keys() -> None:
    text = "GET 'http://u:p@h/v1?k=v' failed; Authorization: Bearer unknown-token, Basic dTpw"
    assert Redactor().message(text) == f"GET 'http://h/v1?k={MARK}' failed; Authorization: Bearer {MARK}, Basic {MARK}"


def test_a_key_in_a_path_is_hidden() -> None:
    assert Redactor([KEY]).redact_url(f"https://host/{KEY}/v1") == f"https://host/{MARK}/v1"


# --- cost and packets -------------------------------------------------------------------------------


@given(places=st.lists(st.integers(0, 60_000), max_size=8), at=st.integers(0, 50_000))
def test_a_detector_sees_a_key_however_it_is_cut(places: list[int], at: int) -> None:
    data = b"x" * at + KEY.encode() + b"y" * (50_000 - at)
    edges = sorted({0, len(data), at + 5, *(place % len(data) for place in places)})
    detector = Detector(Redactor([KEY]))
    for start, end in pairwise(edges):
        detector.feed(data[start:end])
    assert detector.found


def test_a_detector_is_silent_about_clean_data_and_holds_little_of_it() -> None:
    detector = Detector(Redactor([KEY]))
    for _ in range(1_000):
        detector.feed(b"data: {}\n\n" * 100)
    assert not detector.found
    assert sum(map(len, detector._pending)) < 100


@pytest.mark.parametrize(
    "text",
    [
        "a" * 300_000,
        "sk-live-" * 40_000,
        "NrLWxpdmU" * 40_000,
        "a-" * 200_000,
        "://" * 100_000,
        "Bearer " * 50_000,
        "\\" * 300_000,
        "%25" * 100_000,
        "&#x0" * 80_000,
        "\\u0073" * 50_000,
        "%73" * 100_000,
        "&#" + "0" * 300_000,
    ],
)
def test_hostile_text_takes_no_square_time(text: str) -> None:
    started = time.perf_counter()
    Redactor([KEY]).message(text)
    redact_url(text)
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("spelled", ["plain", "\\u00{:02x}", "\\\\u00{:02x}", "%{:02x}", "&#{};"])
def test_the_beginning_of_a_key_at_the_end_of_a_cut_text_goes_in_every_spelling(spelled: str) -> None:
    key = "sk-canary-5f8e2b7d9c1a4e6f"
    redactor = Redactor([key])
    echo = key if spelled == "plain" else "".join(spelled.format(ord(character)) for character in key)
    for kept in range(1, len(echo)):
        text = ("x" * 500 + echo)[kept : kept + 500]
        shown = redactor.cut(text, 500)
        left = shown.replace("x", "").replace(MARK, "")
        assert left == "", (kept, shown)
    assert redactor.cut("a short answer", 500) == "a short answer"
    assert key not in redactor.cut(f"{key} in a short answer", 500)
