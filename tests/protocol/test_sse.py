"""The event stream parser against the WHATWG standard's own examples, and against any splitting of the bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.protocol.sse import EventStream


def events(*chunks: bytes) -> list[bytes]:
    stream = EventStream()
    found = [frame.data for chunk in chunks for frame in stream.feed(chunk, 0.0)]
    return found + [frame.data for frame in stream.finish(0.0)]


# the first four are the examples of section 9.2.6 of the HTML standard
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [b"YHOO\n+2\n10"]),
        (
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
            [b"first event", b"second event", b" third event"],
        ),
        (b"data\n\ndata\ndata\n\ndata:\n", [b"", b"\n"]),
        (b"data:test\n\ndata: test\n\n", [b"test", b"test"]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [b"a", b"b", b"c"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"event: ping\nretry: 10\nid: 7\ndata: a\n\n", [b"a"]),
        (b"event: ping\n\n", []),
        (b"datax: a\n\n", []),
        (b" data: a\n\n", []),
        (b": PROCESSING\n\n: again\n\ndata: [DONE]\n\n", [b"[DONE]"]),
        (b"data: a\n", []),
        (b"data: a\r\n", []),
        (b"data: {\ndata: }\n\n", [b"{\n}"]),
        (b"data: a\rdata: b\n\n", [b"a\nb"]),
        (b"\n\n\ndata: a\n\n", [b"a"]),
    ],
)
def test_events_are_those_of_the_standard(text: bytes, expected: list[bytes]) -> None:
    assert events(text) == expected


@pytest.mark.parametrize(
    ("text", "left"), [(b"data: a\n", b"a"), (b"data: a", b"data: a"), (b"data: a\n\n", b""), (b": c\n", b"")]
)
def test_an_unterminated_event_is_remembered_not_dispatched(text: bytes, left: bytes) -> None:
    stream = EventStream()
    assert [*stream.feed(text, 0.0), *stream.finish(0.0)] == [] or left == b""
    assert stream.unterminated == left


def test_event_names_comments_and_fields_are_counted() -> None:
    stream = EventStream()
    frames = stream.feed(b": c\nevent: error\ndata: x\n\nid: 3\n: c\n\nretry: 4\ndata: y\n\n", 5.0)
    assert [(f.number, f.event, f.data, f.offset_ms) for f in frames] == [(1, "error", b"x", 5.0), (2, "", b"y", 5.0)]
    assert (stream.comments, stream.fields, stream.empty_after_id, stream.id_seen) == (2, 3, 1, True)


def test_an_event_named_body_is_not_mistaken_for_a_body() -> None:
    assert EventStream().feed(b"event: body\ndata: x\n\n", 0.0)[0].event != "body"


@pytest.mark.parametrize(
    "chunks",
    [
        [b"data: " + b"a" * 101 + b"\n\n"],
        [b"data: ", *[b"a"] * 101],
        [b"data: aaaaaaaaaa\n"] * 12,
        [b": " + b"a" * 300 + b"\n"],
    ],
    ids=["line", "bytes", "lines", "comment"],
)
def test_an_oversized_event_sets_overflow_and_ends_reading(chunks: list[bytes]) -> None:
    stream = EventStream(event_bytes=100)
    assert [frame for chunk in chunks for frame in stream.feed(chunk, 0.0)] == []
    assert stream.overflow
    assert stream.feed(b"\n\ndata: b\n\n", 0.0) == []


def test_an_event_of_exactly_the_limit_passes() -> None:
    stream = EventStream(event_bytes=100)
    assert len(stream.feed(b"data: " + b"a" * 100 + b"\n\n", 0.0)) == 1
    assert not stream.overflow


LINE = st.sampled_from(
    [
        b"data: {}",
        b"data:x",
        b"data",
        b"data: ",
        b": c",
        b":",
        b"id: 1",
        b"event: e",
        b"retry: 1",
        b"junk",
        b"",
        b"",
        b"data: \xff\xc3\xa9",
        b"\xef\xbb\xbfdata: b",
    ]
)
ENDING = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n"])


@given(lines=st.lists(st.tuples(LINE, ENDING), max_size=12), cuts=st.lists(st.integers(0, 120), max_size=8), tail=LINE)
def test_any_split_gives_the_same_events_and_counts(
    lines: list[tuple[bytes, bytes]], cuts: list[int], tail: bytes
) -> None:
    text = b"".join(line + ending for line, ending in lines) + tail

    def run(chunks: list[bytes]) -> object:
        stream = EventStream(event_bytes=60)
        frames = [(f.number, f.data, f.event) for chunk in chunks for f in stream.feed(chunk, 0.0)]
        stream.finish(0.0)
        return frames, stream.comments, stream.fields, stream.empty_after_id, stream.unterminated, stream.overflow

    bounds = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in pairwise(bounds)]
    assert run([text]) == run(pieces) == run([text[i : i + 1] for i in range(len(text))])


def reference_events(text: str) -> list[str]:
    """The standard's algorithm, written as slowly as it reads."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    found, data = [], []
    for line in text.split("\n")[:-1]:
        if not line:
            if data:
                found.append("\n".join(data))
            data = []
        elif line.partition(":")[0] == "data":
            value = line.partition(":")[2]
            data.append(value[1:] if value.startswith(" ") else value)
    return found


@given(st.lists(st.tuples(LINE, ENDING), max_size=12))
def test_events_equal_the_standards_algorithm(lines: list[tuple[bytes, bytes]]) -> None:
    text = b"".join(line + ending for line, ending in lines)
    assert [e.decode("utf-8", "replace") for e in events(text)] == reference_events(text.decode("utf-8", "replace"))


@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    events(data)
