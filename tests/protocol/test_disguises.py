"""A key that an echo has changed is found, and words that look a little like one stay in the answer."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.protocol.redaction.disguises import PIECE, fold
from kvv.protocol.redaction.redactor import DETECT_BYTES, MARK, Detector, Redactor

KEY = "sk-kimi-4f9Kq2Zt7Wb1xYz0Pq8L"

DISGUISES: dict[str, Callable[[str], str]] = {
    "upper case": str.upper,
    "lower case": str.lower,
    "other case": str.swapcase,
    "hex": lambda key: key.encode().hex(),
    "hex in capitals": lambda key: key.encode().hex().upper(),
    "hex by bytes": lambda key: key.encode().hex(":"),
    "base32": lambda key: base64.b32encode(key.encode()).decode(),
    "base64 twice": lambda key: base64.b64encode(base64.b64encode(key.encode())).decode(),
    "base64 twice in a longer text": lambda key: base64.b64encode(b"is " + base64.b64encode(key.encode())).decode(),
    "backwards": lambda key: key[::-1],
    "spaced": " ".join,
    "dashed": "-".join,
    "a line each": "\n".join,
    "with invisible spaces": "\u200b".join,
    "spaced in capitals": lambda key: "  ".join(key.upper()),
    "without its last three": lambda key: key[:-3],
    "without its first three": lambda key: key[3:],
    "its last eight": lambda key: key[-8:],
    "its last half": lambda key: key[len(key) // 2 :],
    "its first half": lambda key: key[: len(key) // 2],
}


@pytest.mark.parametrize("name", DISGUISES)
def test_a_disguised_key_is_found_wherever_it_stands(name: str) -> None:
    echo = DISGUISES[name](KEY)
    redactor = Redactor([KEY])
    for text in (f"your key is <{echo}>, is it not?", echo):
        clean = redactor.text(text)
        assert MARK in clean
        # of base64 and base32 the last characters, which hold a few bits of the key, and the padding may stay
        assert len(clean.replace(MARK, "")) <= len(text) - len(echo) + 12
        assert fold(echo.encode())[-PIECE:] not in fold(clean.encode())
        assert redactor.data(text.encode()) == clean.encode()
        assert redactor.suspects(text)


@pytest.mark.parametrize("name", DISGUISES)
@pytest.mark.parametrize("at", [0, DETECT_BYTES - 60, DETECT_BYTES + 5])
def test_a_detector_that_is_shown_it_in_two_pieces_sees_it(name: str, at: int) -> None:
    """Two events, not one word cut by a network: the reader shows events whole."""
    detector = Detector(Redactor([KEY]))
    detector.look(b"x" * at + b" " + DISGUISES[name](KEY).encode())
    detector.look(b"y" * DETECT_BYTES)
    assert detector.found
    clean = Detector(Redactor([KEY]))
    clean.look(b"x" * at + b" " + KEY[:5].encode())
    clean.look(b"y" * DETECT_BYTES)
    assert not clean.found


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("kimi-k3-secret-9f2aB7", "Kimi K3 serves secrets"),
        ("sk-proj-9f2aB7xQ41zT", "keys begin with sk-proj- here"),
        ("sk-or-v1-0a1b2c3d4e5f", "keys begin with sk-or-v1- there"),
        ("sk-bench-0123456789", "the digits are 0123456789"),
        ("correct-horse-battery-staple", "CORRECT horse, battery staple"),
        ("password1", "my password: 1"),
        ("12345678901234", "12,345,678,901,234"),
    ],
)
def test_words_and_numbers_of_an_answer_stay(key: str, answer: str) -> None:
    assert Redactor([key]).text(answer) is answer


@given(st.text("sk-im4f9Kq2 \n", max_size=400))
def test_what_is_cleaned_holds_nothing_more_to_clean(text: str) -> None:
    redactor = Redactor([KEY])
    clean = redactor.text(text)
    assert not redactor.spans(clean.encode())


@pytest.mark.parametrize("unit", ["sk-kimi-4f9", KEY[-8:], "k s ", KEY[::-1]])
def test_hostile_text_takes_linear_time(unit: str) -> None:
    short, long = (min(_timed(Redactor([KEY]).text, unit * n * 800) for _ in range(3)) for n in (1, 8))
    assert long < 8 * 4 * max(short, 0.001)


def test_a_clean_text_costs_little() -> None:
    """Two kilobytes, as of one answer: tens of microseconds, not milliseconds."""
    redactor = Redactor([KEY])
    text = "The answer to question 17 is 42, as 6 times 7 shows. " * 40
    assert not redactor.suspects(text)
    assert min(_timed(redactor.suspects, text) for _ in range(5)) < 0.002


def _timed(what: Callable[[str], object], text: str) -> float:
    """Seconds of this process, which other processes of a busy machine do not lengthen."""
    started = time.process_time()
    what(text)
    return time.process_time() - started
