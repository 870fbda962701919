"""JSON from an endpoint against a JSON Schema of ours: no remote references, bounded messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, NoReturn

from kvv.core.lazy import jsonschema, referencing

_LIMIT = 160


def _refuse(uri: str) -> NoReturn:
    raise referencing.exceptions.NoSuchResource(uri)


@cache
def _nothing_beyond() -> referencing.Registry[Any]:
    return referencing.Registry(retrieve=_refuse)  # type: ignore[call-arg]


def read_json(text: str) -> Any:
    """RFC 8259 JSON; ValueError with one line for everything else, NaN, repeated keys and bottomless nesting
    included.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object repeats a key")
    return found


def mismatch(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Why ``value`` does not satisfy ``schema``, in one bounded line; None when it does."""
    validator = jsonschema.Draft202012Validator(schema, registry=_nothing_beyond())
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except RecursionError:
        return "nested too deeply to be checked"
    if error is None:
        return None
    return f"{error.json_path[:60]}: {error.message[:_LIMIT]}"
