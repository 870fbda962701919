"""Exact serialisation of the core types: JSON for their fields, a packed form for frames.

Exact means: what is read equals what was written, also for lone and *adjacent* surrogates (a pair that a server
split over two chunks must not be joined by storing it), NUL, NaN, infinities and integers of any size up to
Python's own digit limit. JSON escapes (``ensure_ascii``) would join split pairs, so text is written raw, with
``surrogatepass``. ``orjson`` writes what it can write exactly; it reads large integers as floats, so ``json`` reads.

Fields equal to their default are left out: a store written before a field existed can still be read.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

from kvv.core import Fragment, Frame, Picture, UsageReport
from kvv.storage.store.errors import NotStorableError, StoreError

T = TypeVar("T")
Convert = Callable[[Any], Any]

_dump_text = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode

FRAGMENT, BYTES, TUPLE, LITERAL, PICTURE = "$fragment", "$bytes", "$tuple", "$literal", "$picture"
_TAGS = frozenset({FRAGMENT, BYTES, TUPLE, LITERAL, PICTURE})
_PLAIN = frozenset({str, int, float, bool, type(None)})


def dump_json(value: Any) -> bytes:
    """JSON-like value to bytes. Raises NotStorableError for anything else, and for nesting beyond Python's limit."""
    try:
        quick = orjson.dumps(value)
        if b"null" not in quick:  # else one of them may be a NaN or an infinity
            return quick
    except orjson.JSONEncodeError:
        pass  # surrogates, large integers, deep nesting: the slow way can
    try:
        return _dump_text(value).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorableError(f"not JSON-like: {error}") from error


def load_json(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"damaged record: {error}") from error


# --- free-form values: inputs and facts ----------------------------------------------------------


def tag(value: Any, keep: Callable[[bytes], str] | None = None) -> Any:
    """A JSON value that ``untag`` turns back into ``value``, tuples included.

    ``keep`` stores bytes and returns their hexadecimal digest; without it ``Fragment`` and bytes are refused.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [tag(item, keep) for item in value]
    if kind is tuple:
        return {TUPLE: [tag(item, keep) for item in value]}
    if isinstance(value, Mapping):
        return _tag_mapping(value, keep)
    if keep is not None and kind is Fragment:
        return {FRAGMENT: keep(value.data), "splice": value.splice}
    if keep is not None and kind is bytes:
        return {BYTES: keep(value)}
    if kind is Picture:  # its bytes are in the requests that showed it
        return {PICTURE: codec(Picture).encode(value)}
    for base in (str, int, float):  # enumerations and numpy's float64
        if isinstance(value, base):
            return base.__str__(value) if base is str else base(value)
    raise NotStorableError(f"a {kind.__name__} is not JSON-like")


def _tag_mapping(value: Mapping[Any, Any], keep: Callable[[bytes], str] | None) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotStorableError(f"a mapping with the key {str(key)[:40]!r} is not JSON-like, keys must be text")
        out[str.__str__(key)] = tag(item, keep)
    return out if _TAGS.isdisjoint(out) else {LITERAL: out}


def untag(value: Any, fetch: Callable[[str], bytes] | None = None) -> Any:
    """The inverse of ``tag``; ``fetch`` gives the bytes behind a hexadecimal digest."""
    if isinstance(value, list):
        return [untag(item, fetch) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAGS.isdisjoint(value):
        return {key: untag(item, fetch) for key, item in value.items()}
    if LITERAL in value:
        return {key: untag(item, fetch) for key, item in value[LITERAL].items()}
    if TUPLE in value:
        return tuple(untag(item, fetch) for item in value[TUPLE])
    if PICTURE in value:
        return codec(Picture).decode(value[PICTURE])
    if fetch is None:
        raise StoreError("damaged record: bytes where none can be")
    if FRAGMENT in value:
        return Fragment(data=fetch(value[FRAGMENT]), digest=value[FRAGMENT], splice=value["splice"])
    return fetch(value[BYTES])


# --- dataclasses -----------------------------------------------------------------------------------


class Field(NamedTuple):
    name: str
    default: Any
    convert: Convert | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Codec(Generic[T]):
    """Turns one dataclass into a JSON-like dict and back. ``read`` gives the values of ``fields``, in their order."""

    cls: type[T]
    read: Callable[[T], tuple[Any, ...]]
    fields: tuple[Field, ...]
    decoders: Mapping[str, Convert]

    def encode(self, value: T) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for item, (name, default, convert) in zip(self.read(value), self.fields, strict=True):
            if item is default:
                continue
            if convert is not None and item is not None:
                converted = convert(item)
                if converted or default is None or default is _NO_DEFAULT:
                    out[name] = converted
            elif default is _NO_DEFAULT or item != default:
                out[name] = item
        return out

    def decode(self, data: Mapping[str, Any], **more: Any) -> T:
        """``more`` are the fields that were left out of the codec. Keys this version does not know are ignored."""
        known: dict[str, Any] = {}
        try:
            for name, item in data.items():
                convert = self.decoders.get(name)
                if convert is not None:
                    known[name] = item if item is None or convert is _same else convert(item)
            return self.cls(**known, **more)
        except StoreError:
            raise
        except (TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"damaged record: {self.cls.__name__}: {error}") from error


_NO_DEFAULT = dataclasses.MISSING


def _same(value: Any) -> Any:
    return value


@cache
def codec(cls: type[T], *, without: frozenset[str] = frozenset()) -> Codec[T]:
    """The codec of a dataclass, but for the fields ``without``, which the caller keeps elsewhere."""
    hints = get_type_hints(cls)
    fields: list[Field] = []
    decoders: dict[str, Convert] = {}
    for item in dataclasses.fields(cls):  # type: ignore[arg-type]
        if item.name in without:
            continue
        default = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
        encode, decode = (dict, _same) if (cls, item.name) == (UsageReport, "raw") else _plan(hints[item.name])
        fields.append(Field(item.name, default, encode))
        decoders[item.name] = decode
    names = [field.name for field in fields]
    read = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    return Codec(cls=cls, read=read, fields=tuple(fields), decoders=decoders)


def _plan(hint: Any) -> tuple[Convert | None, Convert]:
    """How values of this type are written and read. ``UsageReport.raw`` is parsed JSON already and needs no tags."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        return _plan(inner[0]) if len(inner) == 1 else (None, _same)
    if origin is tuple:
        return _plan_tuple(arguments)
    if origin in (Mapping, dict) or (origin is not None and issubclass(origin, Mapping)):
        return tag, untag
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return None, hint
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        inner_codec = codec(hint)
        return inner_codec.encode, inner_codec.decode
    return None, _same


def _plan_tuple(arguments: tuple[Any, ...]) -> tuple[Convert | None, Convert]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        encode, decode = _plan(arguments[0])
        write = list if encode is None else lambda items: [encode(item) for item in items]
        return write, lambda items: tuple(decode(item) for item in items)
    return list, tuple


# --- frames ------------------------------------------------------------------------------------------

_HEAD = struct.Struct("<II")
_BATCH = 4096


def pack_frames(frames: Sequence[Frame]) -> tuple[int, Iterator[bytes]]:
    """The size, then: count and size of the names; numbers, lengths (int64) and offsets (float64) as columns; names;
    all data joined.

    In pieces, so that a stream of a hundred thousand chunks neither doubles in memory nor holds the interpreter lock
    for long.
    """
    count = len(frames)
    names = dump_json([frame.event for frame in frames]) if any(frame.event for frame in frames) else b""

    def pieces() -> Iterator[bytes]:
        yield _HEAD.pack(count, len(names))
        yield from _column("q", [frame.number for frame in frames])
        yield from _column("q", [len(frame.data) for frame in frames])
        yield from _column("d", [frame.offset_ms for frame in frames])
        yield names
        for start in range(0, count, _BATCH):
            yield b"".join([frame.data for frame in frames[start : start + _BATCH]])

    return _HEAD.size + 24 * count + len(names) + sum(len(frame.data) for frame in frames), pieces()


def _column(code: str, values: list[Any]) -> Iterator[bytes]:
    for start in range(0, len(values), _BATCH):
        batch = values[start : start + _BATCH]
        yield struct.pack(f"<{len(batch)}{code}", *batch)


def unpack_frames(data: bytes) -> tuple[Frame, ...]:
    try:
        count, names_size = _HEAD.unpack_from(data)
        columns = (
            struct.unpack_from(f"<{count}{code}", data, _HEAD.size + 8 * count * place)
            for place, code in enumerate("qqd")
        )
        at = _HEAD.size + 24 * count
        names = load_json(data[at : at + names_size]) if names_size else [""] * count
        at += names_size
        frames = []
        for number, length, offset, name in zip(*columns, names, strict=True):
            frames.append(Frame(number, offset, data[at : at + length], name))
            at += length
    except (struct.error, ValueError) as error:
        raise StoreError(f"damaged frames: {error}") from error
    if at != len(data):
        raise StoreError("damaged frames: the lengths do not add up")
    return tuple(frames)
