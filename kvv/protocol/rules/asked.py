"""What the request asked for, as far as it can be told; None or False wherever it cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from kvv.core import Fragment, Request
from kvv.protocol.encode import encode
from kvv.protocol.json_text import parse, plain

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class Asked:
    """Read-only view of one request. A body that is raw bytes, or a field of a wrong type, asks for nothing."""

    def __init__(self, request: Request) -> None:
        self._request = request
        body = _mapping(request.body)
        #: False for raw bytes: nothing may then be concluded from what is absent
        self.known = isinstance(request.body, Mapping)
        self.stream = request.stream or body.get("stream") is True
        options = _mapping(body.get("stream_options"))
        self.include_usage = options.get("include_usage") is True
        self.continuous_usage = options.get("continuous_usage_stats") is True
        self.token_ids = options.get("include_internal_content") is True
        n = body.get("n")
        self.n = n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 1
        self.logprobs = body.get("logprobs") is True
        self.cap = _positive(body.get("max_completion_tokens")) or _positive(body.get("max_tokens"))
        self.stops = _stops(body)
        self.serial_calls = body.get("parallel_tool_calls") is False
        self.json_format = _mapping(body.get("response_format")).get("type") in ("json_object", "json_schema")
        choice = body.get("tool_choice")
        self.tool_choice = choice if isinstance(choice, str) else "named" if isinstance(choice, Mapping) else None
        function = _mapping(choice).get("function")
        name = _mapping(function).get("name")
        self.named_tool = name if isinstance(name, str) else None
        self._holds: dict[str, bool] = {}
        self._parts: tuple[bytes, ...] | None = None

    def tools(self) -> Mapping[str, bool] | None:
        """Name of every declared tool, dynamic ones included -> whether it requires an argument; None when that cannot
        be told.
        """
        if not self.known or not isinstance(self._request.body, Mapping):
            return None
        found: dict[str, bool] = {}
        for declared in self._declarations(self._request.body):
            if declared is None:
                return None
            for tool in declared:
                function = _mapping(_mapping(tool).get("function"))
                name = function.get("name")
                if isinstance(name, str):
                    schema = function.get("parameters")
                    found[name] = isinstance(schema, Fragment) or bool(_mapping(schema).get("required"))
        return found

    def holds(self, text: str) -> bool:
        """Whether the request's own text has ``text``; the request is searched once per text, and only when asked."""
        known = self._holds.get(text)
        if known is None:
            known = self._holds[text] = self._search(text)
        return known

    @property
    def holds_surrogate(self) -> bool:
        """Whether the request itself has a surrogate escape, as an answer that quotes it must."""
        return any(_SURROGATE.search(part) for part in self._request_parts())

    @property
    def ascii_only(self) -> bool:
        return all(part.isascii() and b"\\u" not in part for part in self._request_parts())

    @property
    def shows_letters(self) -> bool:
        """Whether the request shows letters beyond ASCII as they are, none of them escaped."""
        parts = self._request_parts()
        return any(not part.isascii() for part in parts) and not any(b"\\u" in part for part in parts)

    def _request_parts(self) -> tuple[bytes, ...]:
        if self._parts is None:
            try:
                self._parts = encode(self._request.body).parts
            except ValueError:
                self._parts = ()
        return self._parts

    def _search(self, text: str) -> bool:
        needles = {
            form.encode("utf-8", "surrogatepass")
            for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
        }
        escaped = False
        for part in self._request_parts():
            if any(needle in part for needle in needles):
                return True
            escaped = escaped or b"\\u" in part
        if not escaped:
            return False
        # escapes such as \\u003c may hide it: compare with the text they stand for
        value = plain(parse(b"".join(self._request_parts()), depth=10_000))
        try:
            return json.dumps(text, ensure_ascii=False)[1:-1] in json.dumps(value, ensure_ascii=False)
        except (TypeError, RecursionError, ValueError):
            return True

    def _declarations(self, body: Mapping[str, Any]) -> Iterable[list[Any] | None]:
        """Lists of tools: the request's own, then those of messages; None for what cannot be read."""
        yield _listing(body.get("tools"))
        yield _listing(
            [{"function": f} for f in body["functions"]] if isinstance(body.get("functions"), list) else None
        )
        messages = body.get("messages")
        if isinstance(messages, Fragment):
            messages = [messages]
        for message in messages if isinstance(messages, list | tuple) else ():
            if isinstance(message, Fragment):
                yield None if b'"tools"' in message.data else []
            elif isinstance(message, Mapping):
                yield _listing(message.get("tools"))


def _listing(tools: object) -> list[Any] | None:
    if isinstance(tools, Fragment):
        value = plain(parse(b"[" + tools.data + b"]" if tools.splice else tools.data))
        return value if isinstance(value, list) else None
    if not isinstance(tools, list | tuple):
        return []
    if any(isinstance(tool, Fragment) for tool in tools):
        flat: list[Any] = []
        for tool in tools:
            if isinstance(tool, Fragment):
                inner = plain(parse(b"[" + tool.data + b"]"))
                if not isinstance(inner, list):
                    return None
                flat += inner
            else:
                flat.append(tool)
        return flat
    return list(tools)


def _mapping(value: object) -> Mapping[str, Any]:
    # the plain cases first: an instance check against an abstract class costs more than all the rest
    if value is None:
        return _NOTHING
    return value if value.__class__ is dict or isinstance(value, Mapping) else _NOTHING


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Stop strings that must not be shown; none when the request asks to see them."""
    if body.get("include_stop_str_in_output") is True:
        return ()
    stop = body.get("stop")
    if isinstance(stop, str):
        return (stop,) if stop else ()
    return tuple(s for s in stop if isinstance(s, str) and s) if isinstance(stop, list | tuple) else ()
