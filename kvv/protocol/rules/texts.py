"""Section: text (broken characters, and template markers that leaked).

Text is scanned in batches of a few dozen chunks, so that an ordinary chunk costs an append; a marker cut by a
chunk or batch boundary is found all the same, and the frame that completes it is the evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from kvv.core import Area, Frame, Level, Observation
from kvv.protocol.rules.base import BREAKS, KVV, RFC8259, RuleInfo, stream_rule
from kvv.protocol.rules.track import RuleContext, TextSlot

_rule = partial(RuleInfo, kind=BREAKS, section="text")
MUST, SHOULD = Level.MUST, Level.SHOULD
_CARD = "the model's published tokenizer and chat template"
RULES = (
    _rule(
        # an engine can only replace the bytes that an untrained model really made
        id="text/replacement",
        area=Area.STREAMING,
        level=MUST,
        engine=SHOULD,
        p0=True,
        source=f"{RFC8259} section 8.1; {stream_rule('P0.11')}",
        requirement="Text MUST NOT contain U+FFFD, the mark of a broken character, unless the request does.",
    ),
    _rule(
        id="text/lone-surrogate",
        area=Area.STREAMING,
        level=MUST,
        p0=True,
        source=f"{RFC8259} section 8.2; {stream_rule('P0.11')}",
        requirement="Text MUST NOT contain half of a surrogate pair.",
    ),
    _rule(
        id="leak/special",
        area=Area.STREAMING,
        level=MUST,
        causes=("B54", "D14"),
        source=f"{_CARD}; {KVV}",
        requirement="The model's special tokens MUST NOT reach the client as text, unless the request holds them.",
    ),
    _rule(
        id="leak/tools",
        area=Area.TOOLS,
        level=MUST,
        causes=("B01", "B11", "B31", "B54", "B55", "B60"),
        source=f"{_CARD}; {KVV}",
        requirement="The model's tool-call markers MUST NOT reach the client as text, unless the request holds them.",
    ),
    _rule(
        id="leak/think",
        area=Area.REASONING,
        level=MUST,
        causes=("D06", "D09", "D10"),
        source=f"{_CARD}; {KVV}",
        requirement="The model's think tags MUST NOT reach the client as text, unless the request holds them.",
    ),
)

BATCH = 64
#: characters shown before what was found
_BEFORE = 80
_CLOSING = ("</", "<|close|>")
_QUOTES = "`'\"\\“‘"


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A profile's markers, made ready once."""

    #: marker -> special, tools or think
    groups: Mapping[str, str]
    #: one expression for all markers; of several at one place it finds the longest
    pattern: re.Pattern[str] | None
    #: how markers begin, first characters then the first two: a text with none of these has no marker, and is not
    #: searched
    firsts: tuple[str, ...]
    starts: tuple[str, ...]
    #: as far back as a cut marker or an excerpt may reach, so that neither depends on where a batch ended
    reach: int
    #: marker -> length of the longest marker that begins with it, where there is one
    beginnings: Mapping[str, int]


@lru_cache(maxsize=64)
def _compiled(special: tuple[str, ...], tools: tuple[str, ...], think: tuple[str, ...]) -> _Compiled:
    groups = dict.fromkeys(special, "special") | dict.fromkeys(tools, "tools") | dict.fromkeys(think, "think")
    groups.pop("", None)
    markers = sorted(groups, key=len, reverse=True)
    longer = {
        marker: [len(other) for other in markers if other != marker and other.startswith(marker)] for marker in markers
    }
    return _Compiled(
        groups=groups,
        pattern=re.compile(_expression(markers)) if markers else None,
        firsts=tuple(dict.fromkeys(marker[0] for marker in markers)),
        starts=tuple(dict.fromkeys(marker[:2] for marker in markers)),
        reach=max([_BEFORE, *(len(marker) - 1 for marker in markers)]),
        beginnings={marker: max(lengths) for marker, lengths in longer.items() if lengths},
    )


def _expression(words: Iterable[str]) -> str:
    """Matches the longest of the words at a place, by common beginnings: markup that only begins like a marker is cheap
    to pass.
    """
    after: dict[str, list[str]] = {}
    for word in words:
        after.setdefault(word[:1], []).append(word[1:])
    ends = after.pop("", None) is not None
    branches = [re.escape(first) + _expression(rest) for first, rest in after.items()]
    if len(branches) < 2 and not ends:
        return "".join(branches)
    return f"(?:{'|'.join(branches)}){'?' if ends else ''}" if branches else ""


def _holds(text: str, needles: tuple[str, ...]) -> bool:
    return any(needle in text for needle in needles)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Pieces of one text that are scanned together; ``joined`` begins with ``tail`` characters scanned before."""

    slot: TextSlot
    frames: list[Frame]
    texts: list[str]
    joined: str
    tail: int

    def frame_at(self, position: int) -> Frame:
        """The frame that brought the character at this place of ``joined``."""
        position -= self.tail
        for frame, text in zip(self.frames, self.texts, strict=True):
            position -= len(text)
            if position < 0:
                return frame
        return self.frames[-1]


class Texts:
    __slots__ = ("_broken", "_context", "_markers", "_sink")

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._sink = context.sink
        markers = context.profile.markers
        self._markers = _compiled(
            markers.special, markers.tools, () if context.profile.thinking.inline else markers.think
        )
        #: U+FFFD seen: slot, position in its text, frame, excerpt; judged at the end, where it is known whether the
        #: text was cut
        self._broken: list[tuple[TextSlot, int, Frame, str]] = []

    def add(self, slot: TextSlot, frame: Frame, text: str) -> None:
        slot.frames.append(frame)
        slot.texts.append(text)
        if len(slot.texts) >= BATCH:
            self.scan(slot, last=False)

    def whole(self, slot_kind: str, frame: Frame, text: str) -> None:
        """A text that does not stream: a function's name."""
        slot = TextSlot(slot_kind)
        slot.frames, slot.texts = [frame], [text]
        self.scan(slot)

    def scan(self, slot: TextSlot, *, last: bool = True) -> None:
        """Look through what was added since the last scan. ``last``: no more may come that would make a longer marker
        of one at the end.
        """
        if not slot.texts:
            return
        held = 0 if last else self._held_back(slot)
        frames, texts = slot.frames[: len(slot.frames) - held], slot.texts[: len(slot.texts) - held]
        if not texts:
            return
        fresh, tail = "".join(texts), slot.tail
        joined = tail + fresh
        batch = _Batch(slot, frames, texts, joined, len(tail))
        if "\ufffd" in fresh:
            self._replacement(batch)
        if self._markers.pattern is not None:
            for match in self._found(joined):
                if match.end() > len(tail):
                    self._leak(batch, match)
            if "```" in joined:
                slot.fences += joined.count("```") - tail.count("```")
        slot.seen += len(fresh)
        slot.last = frames[-1]
        known = self._context.last_frame
        if known is None or known.number < slot.last.number:
            self._context.last_frame = slot.last
        slot.tail = joined[-self._markers.reach :]
        del slot.frames[: len(frames)]
        del slot.texts[: len(texts)]

    def _found(self, text: str, start: int = 0) -> Iterable[re.Match[str]]:
        markers = self._markers
        if markers.pattern is None or not _holds(text, markers.firsts) or not _holds(text, markers.starts):
            return ()
        return markers.pattern.finditer(text, start)

    def _held_back(self, slot: TextSlot) -> int:
        """How many of the last pieces wait for more: those from a marker on that is the beginning of a longer one."""
        beginnings = self._markers.beginnings
        if not beginnings:
            return 0
        joined = slot.tail + "".join(slot.texts)
        for match in self._found(joined, max(0, len(joined) - self._markers.reach)):
            longest = beginnings.get(match.group(), 0)
            if match.start() + longest > len(joined):
                position, start = match.start() - len(slot.tail), 0
                for number, text in enumerate(slot.texts):
                    start += len(text)
                    if position < start:
                        return len(slot.texts) - number
        return 0

    def finish(self, observation: Observation) -> None:
        for track in self._context.choices.values():
            for slot in (track.content, track.reasoning, *(call.text for call in track.calls)):
                self.scan(slot)
        if not self._broken or self._context.asked.holds("\ufffd"):
            return
        cut = any(choice.finish_reason == "length" for choice in observation.choices)
        for slot, position, frame, excerpt in self._broken:
            # a character cut in half by the output cap is the cap's doing as much as the server's
            cap = SHOULD if cut and position >= slot.seen - 1 else None
            self._sink.hit("text/replacement", frame, f"U+FFFD in {slot.kind}", excerpt=excerpt, cap=cap)

    def _replacement(self, batch: _Batch) -> None:
        joined, slot = batch.joined, batch.slot
        at = joined.find("\ufffd", batch.tail)
        while at >= 0 and len(self._broken) < 1_000:
            self._broken.append(
                (slot, slot.seen + at - batch.tail, batch.frame_at(at), joined[max(0, at - _BEFORE) : at + 1])
            )
            at = joined.find("\ufffd", at + 1)

    def _leak(self, batch: _Batch, match: re.Match[str]) -> None:
        joined, slot, tail = batch.joined, batch.slot, batch.tail
        marker = match.group()
        group = self._markers.groups[marker]
        start = match.start()
        at_start = slot.seen <= tail and not joined[:start].strip()
        closes = group == "think" and marker.startswith(_CLOSING)
        orphan = closes and slot.opened == 0
        if group == "think" and not closes:
            slot.opened += 1
        if self._context.asked.holds(marker):
            return
        fences = slot.fences - joined.count("```", 0, tail) + joined.count("```", 0, start)
        quoted = (start > 0 and joined[start - 1] in _QUOTES) or fences % 2 == 1
        # prose and code may speak of a marker: only a bare one is proof, a think tag only where a template would put it
        weak = not marker.startswith("<") or (quoted and slot.kind != "name")
        if group == "think":
            weak = weak or slot.kind != "content" or not (at_start or orphan)
        self._sink.hit(
            f"leak/{group}",
            batch.frame_at(match.end() - 1),
            f"the marker {marker} stands in {slot.kind}",
            excerpt=joined[max(0, start - _BEFORE) : match.end()],
            cap=SHOULD if weak else None,
        )
