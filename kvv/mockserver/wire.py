"""An HTTP answer as a status, headers and a sequence of parts to send."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvv.mockserver.canonical import encode_canonical
from kvv.mockserver.config import JsonObject

Headers = tuple[tuple[str, str], ...]
JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Wait:
    """Send what is there, then pause. Zero seconds only separate two writes."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Abort:
    """Send what is there, then end the connection without finishing the answer; ``reset`` does it with a TCP reset."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class Hang:
    """Send nothing more until the client goes away."""


Part = bytes | Wait | Abort | Hang


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """One answer. ``streamed`` replies are sent in chunks, others with their length."""

    status: int
    headers: Headers
    parts: Iterable[Part]
    streamed: bool = False


def with_header(headers: Headers, name: str, value: str | None) -> Headers:
    """The headers with one set (or, with None, taken out); names are in lower case."""
    rest = tuple(pair for pair in headers if pair[0] != name)
    return rest if value is None else (*rest, (name, value))


def json_reply(body: JsonObject, *, status: int = 200, headers: Headers = ()) -> HttpReply:
    """A plain JSON answer."""
    return HttpReply(status=status, headers=(("content-type", JSON), *headers), parts=(encode_canonical(body),))


def event(frame: JsonObject) -> bytes:
    """One server-sent event with a JSON frame as its data."""
    return b"data: " + encode_canonical(frame) + b"\n\n"
