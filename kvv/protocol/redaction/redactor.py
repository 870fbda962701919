"""Keeps the run's secrets out of everything that is stored, shown or raised.

A ``Redactor`` knows the secrets (keys of every role, passwords of proxies) and replaces each wherever it may be
echoed: raw, escaped for JSON (also twice, as inside tool arguments), URLs or HTML, whole or character by character,
in base64 at any alignment (as inside ``user:key``), a long piece of one that a cut left at the end, and what
``disguises`` knows. The common case, nothing there, is a few substring searches that return the same object.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from kvv.protocol.redaction.disguises import REACH, Disguises
from kvv.protocol.redaction.key_forms import keys_in_path
from kvv.protocol.redaction.secret_forms import ESCAPED_LENGTH, base64_cores, escaped_pattern, forms, hints, unescape

MARK = "[redacted]"

#: below this many characters a secret is replaced only where it stands as a whole token
SHORT = 6
#: a run of a secret's first characters at the very end of the data is replaced from this length on
PIECE = 8
#: what people put where a server wants no key; hiding these words would only garble answers
PLACEHOLDERS = frozenset(
    {
        "",
        "empty",
        "none",
        "null",
        "no-key",
        "nokey",
        "dummy",
        "test",
        "key",
        "token",
        "not-needed",
        "sk-no-key-required",
    }
)

#: nesting beyond which ``Redactor.value`` gives up on a value and replaces it whole
MAX_DEPTH = 200
#: how much of an answer is collected before it is searched
DETECT_BYTES = 16_384

_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{0,15}://[^\s\"'<>]+")
_AUTHORITY = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*://)([^/?#]*@)?")
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[^\s\"'<>,;]+", re.IGNORECASE)

T = TypeVar("T")


def redact_url(url: str) -> str:
    """The URL without userinfo, with the value of every query parameter, the fragment and what looks like a key in the
    path replaced; never raises.
    """
    head, question, query = url.partition("?")
    head, fragment = (head, "") if question else head.partition("#")[::2]
    query, hash_mark, _ = query.partition("#")
    head = _AUTHORITY.sub(r"\1", head)
    for secret in keys_in_path(head.partition("://")[2].partition("/")[2]):
        head = head.replace(secret, MARK)
    if question:
        head += "?" + "&".join(
            f"{name}={MARK}" if equals else MARK
            for name, equals, _ in (part.partition("=") for part in query.split("&"))
        )
    return f"{head}#{MARK}" if hash_mark or fragment else head


class Redactor:
    """Replaces the given secrets. Placeholders ("EMPTY", "none"...) and one or two characters are no secrets.

    ``data`` and ``text`` return their argument itself where nothing matches.
    """

    __slots__ = ("_disguises", "_hints", "_needles", "_pattern", "_pieces", "_secrets", "_text_needles", "_text_signs")

    def __init__(self, secrets: Iterable[str | None] = ()) -> None:
        known = {secret.strip() for secret in secrets if secret is not None}
        self._secrets = tuple(
            sorted(
                (s for s in known if len(s) > 2 and s.lower() not in PLACEHOLDERS and s not in MARK),
                key=len,
                reverse=True,
            )
        )
        needles: set[bytes] = set()
        patterns: list[bytes] = []
        escaped: list[str] = []
        for secret in self._secrets:
            short = len(secret) < SHORT
            written = sorted(forms(secret), key=len, reverse=True)
            needles.update(form[:PIECE] for form in written)
            ways = [*map(re.escape, written), escaped_pattern(secret)]
            patterns += [rb"(?<![A-Za-z0-9_-])" + way + rb"(?![A-Za-z0-9_-])" if short else way for way in ways]
            cores = set() if short else base64_cores(secret)
            needles.update(cores, (core.replace(b"/", b"\\/") for core in cores))
            # the characters beside a core hold the secret's outer bits; bounded, so that no long run costs square time
            patterns += [
                rb"[A-Za-z0-9+/_-]{0,3}" + escaped_pattern(core.decode()) + rb"[A-Za-z0-9+/_-]{0,3}=*" for core in cores
            ]
            escaped += [
                *secret[:PIECE],
                *(character for core in cores for character in core.decode() if not character.isalnum()),
            ]
        self._needles = tuple(sorted(needles))
        self._hints = hints(escaped)
        self._text_signs = tuple(sign.decode() for sign, _ in self._hints)
        self._text_needles = tuple(needle.decode("utf-8", "ignore") for needle in self._needles)
        self._pattern = re.compile(b"|".join(patterns)) if patterns else None
        self._pieces = tuple(s.encode() for s in self._secrets if len(s) > PIECE)
        self._disguises = Disguises(self._secrets)

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Data that holds none of these, and no escaped character, holds no secret as it is spelled."""
        return self._needles

    def suspects(self, text: str) -> bool:
        """Whether the text may hold a secret, spelled or disguised; False is certain."""
        return (
            any(needle in text for needle in self._text_needles)
            or self._hides_in(text)
            or self.disguised(text.encode("utf-8", "surrogatepass"))
        )

    def holds(self, data: bytes) -> bool:
        """As ``suspects``, of bytes."""
        return self.spelled(data) or self.disguised(data)

    def spelled(self, data: bytes) -> bool:
        """Whether the bytes may hold a secret as it is spelled, plain or escaped; False is certain."""
        return any(needle in data for needle in self._needles) or self._hides(data)

    def disguised(self, data: bytes) -> bool:
        return self._disguises.hidden_in(data)

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where the secrets stand in the data, as begin and end, in order; those that overlap are one."""
        spelled = [found.span() for found in self._pattern.finditer(data)] if self._pattern else []
        spans: list[tuple[int, int]] = []
        for begin, end in sorted([*spelled, *self._disguises.spans(data)]):
            if spans and begin < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((begin, end))
        return spans

    def _hides(self, data: bytes) -> bool:
        """Whether a secret may stand there with characters escaped. Nearly always the first look says no: none of its
        characters is.
        """
        for sign, pattern in self._hints:
            if sign in data and pattern.search(data):
                text = unescape(data)
                return any(needle in text for needle in self._needles)
        return False

    def plus(self, secrets: Iterable[str | None]) -> Redactor:
        """A redactor that knows these secrets too."""
        return Redactor((*self._secrets, *secrets))

    def data(self, data: bytes) -> bytes:
        """The bytes without any form of a secret."""
        return self._scrub(data) if self.holds(data) else data

    def text(self, text: str) -> str:
        """The text without any form of a secret."""
        return self._scrub_text(text) if self.suspects(text) else text

    def _hides_in(self, text: str) -> bool:
        return any(sign in text for sign in self._text_signs) and self._hides(text.encode("utf-8", "surrogatepass"))

    def _scrub_text(self, text: str) -> str:
        clean = self._scrub(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
        return text if clean == text else clean

    def message(self, text: str) -> str:
        """For logs and exceptions: also without URL userinfo and query values, and without any bearer or basic
        credential.
        """
        return _BEARER.sub(rf"\1 {MARK}", _URL.sub(lambda found: redact_url(found[0]), self.text(text)))

    def redact_url(self, url: str) -> str:
        """``redact_url``, and without a secret in the path or the host."""
        return self.text(redact_url(url))

    def cut(self, text: str, limit: int) -> str:
        """A text that may have been cut at ``limit`` characters before this saw it: a secret can begin within its end,
        spelled in any way.
        """
        if len(text) < limit or not self._secrets:
            return self.text(text)
        whole = text.encode("utf-8", "surrogatepass")
        end = len(text[: -len(self._secrets[0]) * ESCAPED_LENGTH].encode("utf-8", "surrogatepass"))
        # a disguised secret is told by its ends: one that begins before the place is not to be cut there
        end = min([end, *(begin for begin, stop in self.spans(whole) if begin < end < stop)])
        return f"{self._scrub(whole[:end]).decode('utf-8', 'surrogatepass')}{MARK}"

    def value(self, value: T, depth: int = 0) -> T:
        """A copy of a JSON-like value or frozen dataclass, keys included, with every string and bytes scrubbed.

        What holds no secret comes back as the same object. Deeper than ``MAX_DEPTH`` a value is replaced whole.
        """
        return cast(T, self._value(value, depth)) if self._needles else value

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.data(value)
        if value is None or isinstance(value, int | float):
            return value
        if depth >= MAX_DEPTH:
            return MARK
        if isinstance(value, Mapping):
            mapping = {self._value(key, depth + 1): self._value(item, depth + 1) for key, item in value.items()}
            return value if all(map(_same, value.items(), mapping.items())) else mapping
        if isinstance(value, list | tuple):
            items = [self._value(item, depth + 1) for item in value]
            if all(old is new for old, new in zip(value, items, strict=True)):
                return value
            return items if isinstance(value, list) else tuple(items)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = ((name, getattr(value, name)) for name in _field_names(type(value)))
            changed = {name: new for name, old in fields if (new := self._value(old, depth + 1)) is not old}
            return dataclasses.replace(value, **changed) if changed else value
        return value

    def _scrub(self, data: bytes) -> bytes:
        kept, at = [], 0
        for begin, end in self.spans(data):
            kept += [data[at:begin], MARK.encode()]
            at = end
        scrubbed = b"".join([*kept, data[at:]])
        for secret in self._pieces:
            start = scrubbed.rfind(secret[:PIECE])
            length = len(scrubbed) - start
            if start >= 0 and length >= max(PIECE, len(secret) // 3) and secret.startswith(scrubbed[start:]):
                scrubbed = scrubbed[:start] + MARK.encode()
        return scrubbed


class Detector:
    """Tells whether the bytes of one answer may hold a secret, so that a clean answer of many frames costs little.

    A fold over its decoded packets, however they are cut; they are searched a few kilobytes at a time. Disguised ones
    are looked for in what the reader shows (``look``): each event that is not like the one before it.
    """

    __slots__ = ("_found", "_overlap", "_pending", "_redactor", "_shown", "_shown_size", "_size")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._overlap = max(*map(len, redactor.needles), PIECE * ESCAPED_LENGTH) - 1 if redactor.needles else 0
        self._pending: list[bytes] = []
        self._size = 0
        self._shown: list[bytes] = []
        self._shown_size = 0
        self._found = False

    def look(self, data: bytes) -> None:
        self._shown.append(data)
        self._shown_size += len(data)
        if self._shown_size > DETECT_BYTES:
            self._search_shown()

    def feed(self, packet: bytes) -> None:
        self._pending.append(packet)
        self._size += len(packet)
        if self._size > DETECT_BYTES:
            self._search()

    @property
    def found(self) -> bool:
        self._search()
        self._search_shown()
        return self._found

    def _search_shown(self) -> None:
        window = b"\n".join(self._shown)
        self._found = self._found or self._redactor.disguised(window)
        self._shown, self._shown_size = [window[-REACH:]], 0

    def _search(self) -> None:
        window = b"".join(self._pending)
        self._found = self._found or self._redactor.spelled(window)
        self._pending = [window[-self._overlap :]] if self._overlap else []
        self._size = 0


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _same(old: tuple[Any, Any], new: tuple[Any, Any]) -> bool:
    return old[0] is new[0] and old[1] is new[1]
