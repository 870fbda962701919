"""What a reference endpoint is configured with: its answers, its variant, its timing and its faults."""

from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A canned answer: visible text, or a call of a declared tool (then ``text`` is what is said before the call).

    ``turns`` are an agent's answers in order, a shell command each.
    """

    text: str = ""
    tool: str | None = None
    turns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedAnswer:
    """One entry of the answer key.

    An entry answers a request whose last user message contains ``prompt``. With ``images`` it also wants exactly
    these images (hex SHA-256 of the image bytes, in order) in that message. ``suite`` and ``case`` label the counts.
    ``ease`` is the share of the accuracy with which this entry is answered rightly.
    """

    suite: str
    case: str
    prompt: str
    right: Reply
    wrong: Reply
    images: tuple[str, ...] = ()
    ease: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MockConfig:
    """Everything that decides what the endpoint answers; two servers with equal configurations answer alike.

    ``faults`` holds ids of the catalogue (``B19``), with variations (``B19:stream+1in4``), or ``quirk:NAME``.
    ``stamp``: the times of each answer are kept (GET /kvv/times), for those who measure a client.
    ``gateway_timeout_s`` is the limit that the fault I11 imposes, in seconds.
    """

    host: str = "127.0.0.1"
    port: int = 0
    model: str = "kimi-k3"
    variant: str = "kimi-k3"
    accuracy: float = 1.0
    seed: int = 0
    ttft_ms: float = 0
    itl_ms: float = 0
    answers: tuple[KeyedAnswer, ...] = ()
    faults: tuple[str, ...] = ()
    context_window: int = 1_048_576
    api_key: str | None = None
    gateway_timeout_s: float = 60.0
    stamp: bool = False
