"""What was asked and answered in one sample, for people: questions, pictures as files, reasoning, answers, judges."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from kvv.protocol.classify import is_probe
from kvv.storage.store import Store, StoredExchange

#: endings of picture files by the media type that the request declared
ENDINGS: Mapping[str, str] = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
#: exchanges of one sample that are told; an agent has hundreds of turns, and a page of its own in the run's folder
TOLD = 40


def conversation(store: Store, case: str, sample: int) -> Iterator[tuple[str, str]]:
    """Title and text of each part, in the order of the exchanges; requests of our own are left out."""
    for number, stored in enumerate(store.exchanges(case, sample)):
        exchange, said = stored.exchange, stored.observation
        if is_probe(exchange.identity.purpose):
            continue
        if number >= TOLD:
            yield "more", f"only the first {TOLD} exchanges are shown"
            return
        status = f"HTTP {exchange.status}" if exchange.status is not None else "no answer"
        place = f"{exchange.role.value}, step {exchange.identity.step}, attempt {exchange.attempt}, {status}"
        for role, text in messages(stored):
            yield f"{role} ({place})", text
        if said.choices:
            if said.reasoning:
                yield "reasoning", said.reasoning
            calls = "".join(f"\n[call] {call.name} {call.arguments}" for call in said.tool_calls)
            yield f"answer (finish_reason {said.finish_reason})", f"{said.answer}{calls}"


def messages(stored: StoredExchange) -> Iterator[tuple[str, str]]:
    """Role and text of each message of a request; a picture is named by its type and size."""
    for message in _body(stored).get("messages") or ():
        if isinstance(message, dict):
            yield str(message.get("role")), "\n".join(_texts(message.get("content")))


def pictures(stored: StoredExchange) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each picture that a request carries in itself."""
    found = (
        part
        for message in _body(stored).get("messages") or ()
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        for part in message["content"]
    )
    for number, (kind, data) in enumerate(filter(None, map(_picture, found)), start=1):
        yield f"image-{number}.{ENDINGS.get(kind, 'bin')}", data


def _body(stored: StoredExchange) -> dict[str, Any]:
    try:
        body = json.loads(stored.body)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _texts(content: object) -> Iterator[str]:
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict) and (picture := _picture(part)):
            yield f"[picture: {picture[0]}, {len(picture[1]):,} bytes]"
        elif isinstance(part, dict):
            yield str(part.get("text", json.dumps(part)[:300]))
        elif part is not None:
            yield str(part)


def _picture(part: object) -> tuple[str, bytes] | None:
    """Media type and bytes of a part with a data URL; None for every other part."""
    image = part.get("image_url") if isinstance(part, dict) else None
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, _, data = url.partition(",")
    try:
        return head[5:].split(";")[0], base64.b64decode(data, validate=True)
    except ValueError:
        return None
