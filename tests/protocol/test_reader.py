"""The reader: what an answer is taken for, what is kept of it, and that the fast way equals the long way."""

from __future__ import annotations

import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvv.core import Fault, FaultKind, Identity, Level, Request, Shape
from kvv.profiles.profile import Markers, Profile, load_profile
from kvv.protocol.reader import ExchangeReader, ReadLimits, Received, kept_headers, read_again
from kvv.protocol.rules import rules_for

IDENTITY = Identity(case="a", sample=0, step=0, ask=0, purpose="probe")
SSE = [("Content-Type", "text/event-stream")]
JSON = [("Content-Type", "application/json")]
STREAMED = Request(body={"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}, stream=True)
PLAIN = Request(body={"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
OPENAI = load_profile("openai")


def chunk(delta: dict[str, Any], finish: str | None = None, **top: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]} | top


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else orjson.dumps(data)) + b"\n\n"


COMPLETE = [
    event(chunk({"role": "assistant", "content": ""})),
    event(chunk({"content": "Hi"})),
    event(chunk({}, "stop")),
    event(b"[DONE]"),
]
BODY = orjson.dumps(
    {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
)


def read(
    chunks: list[bytes],
    *,
    status: int | None = 200,
    headers: list[tuple[str, str]] = SSE,
    request: Request = STREAMED,
    profile: Profile | None = OPENAI,
    fault: Fault | None = None,
    close_delimited: bool = False,
    **reader: Any,
) -> Received:
    rules = rules_for(profile, request) if profile else None
    options = {"keep_frames": False, "limits": ReadLimits(), "redact": None} | reader
    made = ExchangeReader(identity=IDENTITY, attempt=1, request=request, started="t", rules=rules, **options)
    if status is not None:
        made.head(status, headers)
    for offset, data in enumerate(chunks):
        if not made.feed(data, float(offset)):
            break
    return made.finish(fault=fault, total_ms=99.0, close_delimited=close_delimited)


def rules_of(received: Received) -> list[str]:
    return [finding.rule for finding in received.findings]


# --- what it is ------------------------------------------------------------------------------------


def test_an_event_stream_labelled_json_is_decoded_and_objected_to() -> None:
    received = read(COMPLETE, headers=JSON)
    assert received.observation.answer == "Hi"
    assert rules_of(received) == ["stream/content-type"]


def test_a_json_body_for_a_stream_request_is_a_body_and_objected_to() -> None:
    received = read([BODY], headers=JSON)
    assert (received.observation.answer, received.observation.shape) == ("Hi", Shape.COMPLETION)
    assert rules_of(received) == ["stream/not-streamed"]


def test_a_json_body_labelled_event_stream_is_a_body() -> None:
    assert read([BODY], headers=SSE, request=PLAIN).observation.answer == "Hi"


@pytest.mark.parametrize("headers", [SSE, JSON, [("content-type", "text/html")], []])
@pytest.mark.parametrize("status", [200, 404, 502])
def test_html_is_not_json_under_any_status_and_label(headers: list[tuple[str, str]], status: int) -> None:
    received = read([b"<!DOCTYPE html>", b"<html>data: x</html>"], status=status, headers=headers, request=PLAIN)
    assert received.observation.shape is Shape.NOT_JSON
    assert received.observation.choices == ()


@pytest.mark.parametrize("headers", [SSE, JSON, []])
@pytest.mark.parametrize("split", [1, 3, 1_000])
def test_the_first_bytes_may_come_in_any_pieces(headers: list[tuple[str, str]], split: int) -> None:
    wire = b"\n: hello\n\n" + b"".join(COMPLETE)
    received = read([wire[i : i + split] for i in range(0, len(wire), split)], headers=headers)
    assert (received.observation.answer, received.observation.done, received.exchange.bytes_received) == (
        "Hi",
        True,
        len(wire),
    )


@pytest.mark.parametrize("wire", [b"data", b"d", b":", b" ", b"\xef\xbb", b"{", b"da"])
def test_an_answer_cut_within_its_first_bytes_is_recorded(wire: bytes) -> None:
    received = read([wire], headers=[], fault=Fault(kind=FaultKind.RESET, detail="x"))
    assert received.exchange.bytes_received == len(wire)
    assert received.exchange.fault is not None


def test_no_head_is_shape_none_and_no_byte_is_empty() -> None:
    fault = Fault(kind=FaultKind.CONNECT, detail="refused")
    assert read([], status=None, fault=fault).observation.shape is Shape.NONE
    assert read([]).observation.shape is Shape.EMPTY
    assert read([], status=None, fault=fault).findings == ()


def test_a_refusal_is_decoded_for_its_error() -> None:
    received = read([b'{"error": {"message": "no", "type": "invalid_request_error"}}'], status=400, headers=JSON)
    assert received.observation.shape is Shape.ERROR
    assert received.observation.error is not None
    assert received.observation.error.type == "invalid_request_error"
    assert received.findings == ()


# --- ends and limits -------------------------------------------------------------------------------


def test_a_close_delimited_stream_without_its_end_is_a_cut_and_no_violation() -> None:
    received = read(COMPLETE[:2], close_delimited=True)
    assert received.exchange.fault is not None
    assert received.exchange.fault.kind is FaultKind.CUT
    assert received.findings == ()


@pytest.mark.parametrize("chunks", [COMPLETE[:3], [*COMPLETE[:2], COMPLETE[3]]])
def test_a_close_delimited_stream_with_either_end_is_judged(chunks: list[bytes]) -> None:
    received = read(chunks, close_delimited=True)
    assert received.exchange.fault is None
    assert rules_of(received) in (["stream/done"], ["finish/missing"])
    # after finish_reason a cut looks like a missing [DONE]
    assert [one.level for one in received.findings] == [
        Level.SHOULD if one.rule == "stream/done" else Level.MUST for one in received.findings
    ]


def test_a_delimited_stream_without_its_end_is_a_violation() -> None:
    received = read(COMPLETE[:2])
    assert received.exchange.fault is None
    assert sorted(rules_of(received)) == ["finish/missing", "stream/done"]


def test_a_close_delimited_body_that_is_cut_is_a_cut() -> None:
    fault = read([BODY[:-20]], headers=JSON, request=PLAIN, close_delimited=True).exchange.fault
    assert fault is not None
    assert fault.kind is FaultKind.CUT
    assert read([BODY], headers=JSON, request=PLAIN, close_delimited=True).exchange.fault is None


@pytest.mark.parametrize(
    ("chunks", "headers"),
    [
        ([b'{"a":"', *[b"x" * 100] * 20], JSON),
        ([b"data: ", *[b"x" * 100] * 20], SSE),
        ([COMPLETE[0], *[event(chunk({"content": "x" * 100})) for _ in range(20)]], SSE),
    ],
    ids=["body", "event", "text"],
)
def test_a_limit_ends_reading_with_a_fault(chunks: list[bytes], headers: list[tuple[str, str]]) -> None:
    received = read(chunks, headers=headers, limits=ReadLimits(body_bytes=1_000, event_bytes=1_000))
    assert received.exchange.fault is not None
    assert received.exchange.fault.kind is FaultKind.TOO_LARGE
    assert received.exchange.bytes_received < sum(map(len, chunks))
    assert [finding for finding in received.findings if finding.level == "must"] == []


def test_deep_json_is_recorded_not_raised() -> None:
    assert read([b"[" * 100_000], headers=JSON).observation.deviations == ("json-too-deep",)
    received = read([event(b"[" * 100_000), *COMPLETE])
    assert received.observation.answer == "Hi"
    assert rules_of(received) == ["stream/json"]


# --- what is kept ----------------------------------------------------------------------------------


def test_only_useful_headers_are_kept() -> None:
    useful = [
        *(
            "date",
            "x-request-id",
            "apim-request-id",
            "x-generation-id",
            "retry-after",
            "x-ratelimit-remaining-tokens",
            "x-msh-providerdeployid",
        ),
        *(
            "cf-ray",
            "x-openrouter-provider",
            "via",
            "server",
            "content-encoding",
            "transfer-encoding",
            "content-length",
            "content-type",
        ),
    ]
    useless = [
        "set-cookie",
        "authorization",
        "openai-organization",
        "strict-transport-security",
        "x-powered-by",
        "alt-svc",
    ]
    kept = kept_headers(
        [*((name.title(), "v") for name in [*useful, *useless]), ("Location", "https://user:pw@example.org/path?key=1")]
    )
    assert [name for name, _ in kept] == [*useful, "location"]
    assert dict(kept)["location"] == "example.org"


def test_frames_are_kept_on_request_up_to_the_limit() -> None:
    everything = read(COMPLETE, keep_frames=True).exchange
    assert [frame.number for frame in everything.frames] == [1, 2, 3, 4]
    assert everything.frames_kept
    some = read(COMPLETE, keep_frames=True, limits=ReadLimits(kept_frames_bytes=300)).exchange
    assert 0 < len(some.frames) < 4
    assert not some.frames_kept
    assert (some.frame_count, read(COMPLETE).exchange.frames) == (4, ())


def test_without_keep_frames_only_objected_frames_stay() -> None:
    received = read(
        [*COMPLETE[:2], event(chunk({"content": "x"}, created=2)), event(chunk({"content": "\ufffd"})), *COMPLETE[2:]]
    )
    assert [frame.number for frame in received.exchange.frames] == [3, 4]
    assert {finding.frame for finding in received.findings} == {3, 4}
    assert received.exchange.frames[1].data == COMPLETE[1][6:-2].replace(b"Hi", "\ufffd".encode())


def test_upstream_names_come_from_body_and_headers() -> None:
    named = event(chunk({"content": "a"}, system_fingerprint="fp", provider="Body"))
    assert read([named], headers=[*SSE, ("x-provider", "Header")]).exchange.upstream.provider == "Body"
    upstream = read(
        [event(chunk({"content": "a"}, system_fingerprint="fp"))], headers=[*SSE, ("x-provider", "Header")]
    ).exchange.upstream
    assert (upstream.provider, upstream.system_fingerprint, upstream.model) == ("Header", "fp", "m")


def test_redaction_covers_all_that_is_kept() -> None:
    def redact(data: bytes) -> bytes:
        return data.replace(b"sk-secret", b"***")

    wire = [
        event(chunk({"role": "assistant", "content": "your key is sk-secret"}, id="")),
        event({"error": {"message": "bad key sk-secret"}}),
    ]
    received = read(wire, headers=[*SSE, ("x-request-id", "sk-secret")], keep_frames=True, redact=redact)
    assert "sk-secret" not in repr(received)
    assert "***" in received.observation.answer


def test_timing_counts_increments_and_gaps() -> None:
    timing = read(
        [event(chunk({"role": "assistant", "content": ""})), *[event(chunk({"content": "x"}))] * 101, *COMPLETE[2:]]
    ).exchange.timing
    assert (timing.first_byte_ms, timing.first_token_ms, timing.increments, timing.max_gap_ms, timing.total_ms) == (
        0.0,
        1.0,
        101,
        1.0,
        99.0,
    )
    assert timing.itl_p50_ms == pytest.approx(1.0, rel=0.03)
    assert timing.itl_p99_ms == pytest.approx(1.0, rel=0.03)


def test_increments_of_one_read_have_no_gap() -> None:
    timing = read([b"".join([event(chunk({"content": "x"}))] * 99), event(chunk({"content": "x"}))]).exchange.timing
    assert (timing.increments, timing.itl_p50_ms, timing.max_gap_ms) == (100, 0.0, 1.0)


def test_a_long_stream_costs_its_text_and_little_more() -> None:
    frame = event(chunk({"content": " word"}))
    tracemalloc.start()
    rules = rules_for(OPENAI, STREAMED)
    reader = ExchangeReader(
        identity=IDENTITY,
        attempt=1,
        request=STREAMED,
        started="t",
        rules=rules,
        keep_frames=False,
        limits=ReadLimits(),
        redact=None,
    )
    reader.head(200, SSE)
    reader.feed(COMPLETE[0], 0.0)
    for number in range(20_000):
        reader.feed(frame, float(number))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 600_000
    assert len(reader.finish(fault=None, total_ms=1.0).observation.answer) == 100_000


# --- the fast way is the long way ------------------------------------------------------------------

TEXT = st.sampled_from(
    [
        "a",
        " b",
        "",
        "é",
        "月",
        "\ufffd",
        "<|end_of_msg|>",
        "<|end_",
        "of_msg|>",
        "<think>",
        "</think>",
        '"',
        "\\",
        "\n",
        "```",
        "x" * 50,
    ]
)
DELTA = st.one_of(
    st.builds(lambda t: {"content": t}, TEXT),
    st.builds(lambda t: {"reasoning_content": t}, TEXT),
    st.builds(lambda t: {"reasoning": t}, TEXT),
    st.builds(lambda t: {"content": t, "tool_calls": None}, TEXT),
    st.builds(lambda t, i: {"tool_calls": [{"index": i, "function": {"arguments": t}}]}, TEXT, st.integers(0, 1)),
    st.builds(
        lambda t, i: {
            "tool_calls": [{"index": i, "id": f"f_{i}", "type": "function", "function": {"name": "f", "arguments": t}}]
        },
        TEXT,
        st.integers(0, 1),
    ),
    st.builds(lambda t: {"role": "assistant", "content": t}, TEXT),
    st.just({}),
)
TOP = st.sampled_from(
    [
        {},
        {},
        {},
        {},
        {"id": "c2"},
        {"usage": None},
        {"usage": {"completion_tokens": 1}},
        {"created": 2},
        {"model": "n"},
        {"x": "y"},
    ]
)
FINISH = st.sampled_from([None] * 8 + ["stop", "tool_calls"])
RUN = st.builds(
    lambda delta, finish, top, times: [event(chunk(delta, finish, **top))] * times,
    DELTA,
    FINISH,
    TOP,
    st.integers(1, 90),
)
TEXTS = st.builds(
    lambda texts, field: [event(chunk({field: text})) for text in texts],
    st.lists(TEXT, max_size=12),
    st.sampled_from(["content", "reasoning_content"]),
)
ODD = st.sampled_from(
    [
        event(b"[DONE]"),
        event(b"{"),
        b": c\n\n",
        b"event: e\n" + event(chunk({"content": "a"})),
        event({"error": {"message": "m"}}),
        event(chunk({"content": "a"})).replace(b'"a"', b'"\\ud800"'),
        event(chunk({"content": "a"})).replace(b'"a"', b'"a","content":"b"'),
        event(chunk({"content": "a"})).replace(b'"a"', b'"\xff"'),
        event(chunk({"content": "a"})).replace(b'"a"', b'"a","b":"c"'),
        event(chunk({"content": "a"})).replace(b'"a"', b"null"),
        event(chunk({"content": "a"})).replace(b'"a"', b'"a"  '),
        event(chunk({"content": "a"})).replace(b'"content":', b'"content" : '),
    ]
).map(lambda data: [data])
STREAMS = st.lists(RUN | TEXTS | ODD, max_size=8).map(lambda runs: [data for run in runs for data in run])
KIMI = load_profile("kimi-k3")
NESTED = Markers(special=("<|end", "<|end_of"), tools=("<|end_of_msg|>",), think=("<think>", "</think>"))
PROFILES = [OPENAI, KIMI, KIMI.model_copy(update={"markers": NESTED})]
TOOLS = [{"type": "function", "function": {"name": "f"}}]


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(stream=STREAMS, profile=st.sampled_from(PROFILES), n=st.integers(1, 2), joined=st.integers(1, 40))
def test_the_fast_way_equals_the_long_way(stream: list[bytes], profile: Profile, n: int, joined: int) -> None:
    request = Request(
        body={"model": "m", "n": n, "tools": TOOLS, "stream": True, "stream_options": {"include_usage": True}},
        stream=True,
    )
    reads = [b"".join(stream[i : i + joined]) for i in range(0, len(stream), joined)]

    def run(chunks: list[bytes], **options: Any) -> tuple[Any, ...]:
        received = read(chunks, request=request, profile=profile, **options)
        exchange = received.exchange
        return (
            received.observation,
            received.findings,
            [(f.number, f.data) for f in exchange.frames],
            exchange.timing.increments,
            exchange.frame_count,
        )

    slow = run(reads, steady=False)
    assert run(reads) == slow
    assert run(stream) == slow


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(stream=STREAMS, profile=st.sampled_from(PROFILES))
def test_a_stored_exchange_is_judged_as_it_was(stream: list[bytes], profile: Profile) -> None:
    first = read(stream, profile=profile, keep_frames=True, headers=[*SSE, ("Transfer-Encoding", "chunked")])
    again = read_again(first.exchange, STREAMED, rules_for(profile, STREAMED))
    assert again.observation == first.observation
    assert again.findings == first.findings


def test_the_fast_way_is_taken() -> None:
    """Guards the speed: a plain stream parses few frames."""
    reader = ExchangeReader(
        identity=IDENTITY,
        attempt=1,
        request=STREAMED,
        started="t",
        rules=rules_for(OPENAI, STREAMED),
        keep_frames=False,
        limits=ReadLimits(),
        redact=None,
    )
    reader.head(200, SSE)
    taken: list[int] = []
    slow = reader._slow
    reader._slow = lambda frame: (taken.append(frame.number), slow(frame))[1]  # type: ignore[method-assign]
    for data in [
        COMPLETE[0],
        *[event(chunk({"reasoning_content": f"r{n}"})) for n in range(50)],
        *[event(chunk({"content": f"c{n}"})) for n in range(50)],
    ]:
        reader.feed(data, 0.0)
    assert taken == [1, 2, 52]


@given(st.lists(st.binary(max_size=60), max_size=5), st.sampled_from([SSE, JSON, []]), st.sampled_from([200, 400, 500]))
def test_no_bytes_raise(chunks: list[bytes], headers: list[tuple[str, str]], status: int) -> None:
    read(chunks, headers=headers, status=status)


HOSTILE_KEYS = [
    "choices",
    "delta",
    "index",
    "content",
    "tool_calls",
    "function",
    "arguments",
    "id",
    "finish_reason",
    "usage",
    "logprobs",
    "error",
    "role",
    "message",
]
HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(HOSTILE_KEYS), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.lists(HOSTILE, max_size=4), st.sampled_from(PROFILES))
def test_no_json_raises(frames: list[Any], profile: Profile) -> None:
    wrapped = [chunk({}) | {"choices": [{"index": 0, "delta": frame, "finish_reason": None}]} for frame in frames]
    read([event(frame) for frame in [*frames, *wrapped]], profile=profile)
    for frame in frames:
        read([orjson.dumps(frame)], headers=JSON, profile=profile)


def _fed(event: bytes, events: int, limits: ReadLimits) -> tuple[int, int]:
    """How many of the packets were read before the reader wanted no more, and what it counts as said."""
    reader = ExchangeReader(
        identity=IDENTITY,
        attempt=1,
        request=STREAMED,
        started="t",
        rules=None,
        keep_frames=False,
        limits=limits,
        redact=None,
    )
    reader.head(200, (("content-type", "text/event-stream"),))
    taken = 0
    while taken < events and reader.feed(event, taken):
        taken += 1
    return taken, reader.said


CHUNK = b'data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[%s]}\n\n'
SAYS = CHUNK % b'{"index":0,"delta":{"content":"a"},"finish_reason":null}'


@pytest.mark.parametrize("event", [CHUNK % b"", b"data: {}\n\n", b'data: {"usage":null}\n\n', b"data: 1\n\n"])
def test_events_without_a_choice_are_no_news_and_end_the_stream(event: bytes) -> None:
    assert _fed(event, 200, ReadLimits(barren_events=50)) == (50, 0)
    assert _fed(event, 50, ReadLimits(barren_events=50)) == (50, 0)


def test_events_with_a_choice_are_news_however_many_they_are() -> None:
    assert _fed(SAYS, 200, ReadLimits(barren_events=50)) == (200, 200)


def test_a_stream_is_bounded_in_bytes_whatever_it_says() -> None:
    assert _fed(SAYS, 200, ReadLimits(stream_bytes=100 * len(SAYS)))[0] == 100
