"""Error bodies, in the shapes that servers of this protocol are known to send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from kvv.core import ErrorBody

#: characters kept of a message
MESSAGE_LIMIT = 2_000


def read_error(body: object) -> ErrorBody | None:
    """The error in a JSON body: ``{"error": {...}}``, ``{"error": "text"}``, ``{"message", "type"}`` or ``{"detail":
    ...}``.
    """
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if isinstance(error, dict):
        return _error(error, error.get("message"), envelope=True)
    if error is not None and error is not False and error != "":
        return _error(body, error, envelope=False)
    if isinstance(body.get("message"), str) and ("type" in body or "code" in body or body.get("object") == "error"):
        return _error(body, body["message"], envelope=False)
    if "detail" in body:
        return _error(body, body["detail"], envelope=False)
    return None


def _error(holder: Mapping[str, Any], message: object, *, envelope: bool) -> ErrorBody:
    if message is None:
        text = ""
    elif isinstance(message, str):
        text = message
    else:
        try:
            text = orjson.dumps(message).decode()
        except TypeError:
            text = repr(message)[:MESSAGE_LIMIT]
    code = holder.get("code")
    kind = holder.get("type")
    return ErrorBody(
        message=text[:MESSAGE_LIMIT],
        type=kind[:200] if isinstance(kind, str) else None,
        code=code[:200]
        if isinstance(code, str)
        else code
        if isinstance(code, int) and not isinstance(code, bool)
        else None,
        envelope=envelope,
    )
