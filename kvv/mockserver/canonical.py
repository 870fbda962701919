"""Compact JSON: as tools are rendered into the prompt (keys sorted), and as the endpoint writes JSON texts (keys as
given).
"""

import json
from typing import Any

import orjson

from kvv.mockserver.errors import ApiError


def compact(value: Any) -> str:
    """Compact JSON with recursively sorted keys and unescaped non-ASCII characters."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        # Deeper than orjson's limit, or integers beyond 64 bits.
        return _slow(value, sort_keys=True)


def plain(value: Any) -> str:
    """Compact JSON in the given key order; integers of any size are exact."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return _slow(value, sort_keys=False)


def encode_canonical(value: Any) -> bytes:
    """``plain`` as UTF-8. A lone surrogate, which JSON cannot carry in UTF-8, is written as an escape."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _slow(value: Any, *, sort_keys: bool) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=sort_keys, separators=(",", ":"))
    except RecursionError:
        raise ApiError("the request nests too deeply", reason="json") from None
