"""Pictures that say in their own comment what they show: which one a question means, and how the faults of group g
change it.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest

from kvv.mockserver.content import sight
from kvv.mockserver.validation.images import Image, image_from_url
from kvv.mockserver.validation.request import ChatRequest, Message

ASK = "Which number does the picture show? Reply with the digits only."
ASK_ALL = "Which numbers do the pictures show, in order? Reply with the numbers only, separated by commas."


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(comment: bytes, side: int = 40) -> dict[str, Any]:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    rows = zlib.compress((b"\0" + b"\xff" * side) * side)
    data = (
        b"\x89PNG\r\n\x1a\n"
        + head
        + chunk(b"tEXt", b"Comment\0" + comment)
        + chunk(b"IDAT", rows)
        + chunk(b"IEND", b"")
    )
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}


def shows(value: str, side: int = 40) -> dict[str, Any]:
    return png(f"kvv-shows: {value}\n".encode(), side)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def asking(*parts: str | Image, before: tuple[Message, ...] = ()) -> ChatRequest:
    return ChatRequest(model="m", messages=(*before, Message(role="user", parts=parts)))


def image(value: str) -> Image:
    return Image(digest=value, media="image/png", width=40, height=40, shows=value)


# --- what a picture says of itself ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comment", "shown"),
    [
        (b"kvv-shows: 4817\n", "4817"),
        (b"kvv-shows: red\nmore", "red"),
        (b"kvv-shows: 4817", ""),
        (b"kvv-shows: \n", ""),
        (b"kvv-shows: \x1b[31m\n", ""),
        (b"kvv-shows: " + b"9" * 61 + b"\n", ""),
        (b"shows: 4817\n", ""),
    ],
)
def test_a_comment_is_read_up_to_its_line_feed(comment: bytes, shown: str) -> None:
    assert image_from_url(png(comment)["image_url"]["url"]).shows == shown


# --- which picture a question means ----------------------------------------------------------------------------

A, B, C = image("4817"), image("2953"), image("6184")
EARLIER = (Message(role="user", parts=(A, "Remember this picture.")), Message(role="assistant", parts=("I do.",)))
BETWEEN = ("ALPHA", A, "BRAVO", B, "CHARLIE", C)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (asking(A, ASK), "4817"),
        (asking(ASK, A), "4817"),
        (asking(B, A, ASK), "4817"),
        (asking(A, B, ASK_ALL), "4817, 2953"),
        (asking(A, A, ASK_ALL), "4817, 4817"),
        (asking(B, ASK_ALL, before=EARLIER), "2953"),
        (asking(ASK, before=EARLIER), "4817"),
        (asking(B, "Which number does picture 1 show?", before=EARLIER), "4817"),
        (asking(B, "Which number does picture number 2 show?", before=EARLIER), "2953"),
        (asking(B, "Which number does picture 3 show?", before=EARLIER), "I see no picture."),
        (asking(*BETWEEN, "Which number does the picture directly after the word BRAVO show?"), "2953"),
        (asking("ALPHA and BRAVO", A, "BRAVO", B, "Which number does the picture after the word ALPHA show?"), "4817"),
        (asking(A, B, "ALPHA", "BRAVO", "Which number does the picture after the word BRAVO show?"), "4817"),
        (asking(ASK), "I see no picture."),
        (asking("Which colour is the picture? Reply with one word."), "I see no picture."),
        (asking(image(""), ASK), None),
        (asking(A, image(""), ASK), "I cannot make this picture out."),
        (asking(A, "What is 2 + 2?"), None),
        (asking("She hung the picture up. Where is the hammer?"), None),
        (ChatRequest(model="m", messages=(Message(role="system", parts=("The picture.",)),)), None),
    ],
)
def test_the_picture_that_a_question_means(request_: ChatRequest, said: str | None) -> None:
    assert sight.answer(request_) == said


@pytest.mark.parametrize(
    ("shown", "misread"),
    [
        ("4817", "7184"),
        ("2", "3"),
        ("99", "00"),
        ("red", "green"),
        ("grey", "red"),
        ("triangle", "circle"),
        ("x", "something else"),
    ],
)
def test_a_misread_picture_shows_another_value_of_its_kind(shown: str, misread: str) -> None:
    assert sight.answer(asking(image(shown), ASK), misread=True) == misread


def test_of_several_pictures_one_is_misread() -> None:
    assert sight.answer(asking(A, B, ASK_ALL), misread=True) == "7184, 2953"


# --- over the wire, with and without faults --------------------------------------------------------------------


def content(client: Any, *parts: dict[str, Any], **fields: Any) -> str:
    got = client.ask(list(parts), reasoning_effort="low", **fields)
    assert got.status == 200, got.raw
    return str(got.message["content"])


@pytest.mark.parametrize("stream", [True, False])
def test_the_endpoint_says_what_the_picture_shows(kimi: Any, stream: bool) -> None:
    assert content(kimi, shows("4817"), text(ASK), stream=stream) == "4817"
    assert (
        content(kimi, shows("red"), text("Which colour is the picture? Reply with one word."), stream=stream) == "red"
    )


@pytest.mark.parametrize("fault", ["G01", "G03"])
def test_pictures_moved_to_the_front_lose_the_words_before_them(serve: Any, fault: str) -> None:
    parts = (
        text("ALPHA"),
        shows("4817"),
        text("BRAVO"),
        shows("2953"),
        text("Which number does the picture after the word BRAVO show?"),
    )
    assert content(serve(), *parts) == "2953"
    assert content(serve(faults=(fault,)), *parts) == "4817"
    # the order among the pictures is kept
    assert content(serve(faults=(fault,)), shows("4817"), shows("2953"), text(ASK_ALL)) == "4817, 2953"


@pytest.mark.parametrize("fault", ["G04", "G06"])
def test_a_blurred_picture_is_misread_in_a_share_of_the_answers(serve: Any, fault: str) -> None:
    client = serve(fresh=True, faults=(fault,))
    said = [content(client, shows("4817"), text(ASK)) for _ in range(16)]
    assert set(said) == {"4817", "7184"}


def test_one_cache_entry_for_all_pictures_gives_the_first_ones_value(serve: Any) -> None:
    client = serve(fresh=True, faults=("G11",))
    assert [content(client, shows(value), text(ASK)) for value in ("31862", "75249")] == ["31862", "31862"]
    assert content(client, shows("75249"), text(ASK_ALL)) == "75249"


def test_a_dropped_picture_is_not_seen(serve: Any) -> None:
    assert content(serve(faults=("G13",)), shows("4817"), text(ASK)) == "I see no picture."


def test_an_answer_key_goes_before_what_a_picture_says_of_itself(serve: Any) -> None:
    from kvv.mockserver import KeyedAnswer, Reply

    key = (KeyedAnswer(suite="v", case="1", prompt=ASK, right=Reply(text="seven"), wrong=Reply(text="nine")),)
    assert content(serve(answers=key), shows("4817"), text(ASK)) == "seven"
