"""Section: text (broken characters, and template markers that leaked).

Text is scanned in batches of a few dozen chunks, so that an ordinary chunk costs an append; a marker cut by a
chunk or batch boundary is found all the same, and the frame that completes it is the evidence.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial

from kvv.model import Area, Frame, Level, Observation
from kvv.rules.base import BREAKS, KVV, RFC8259, RuleInfo, stream_rule
from kvv.rules.track import Context, TextSlot

_rule = partial(RuleInfo, kind=BREAKS, section="text")
MUST, SHOULD = Level.MUST, Level.SHOULD
_CARD = "the model's published tokenizer and chat template"
RULES = (
    _rule(
        # an engine can only replace the bytes that an untrained model really made
        id="text/replacement", area=Area.STREAMING, level=MUST, engine=SHOULD, p0=True, source=f"{RFC8259} section 8.1; {stream_rule('P0.11')}",
        requirement="Text MUST NOT contain U+FFFD, the mark of a broken character, unless the request does.",
    ),
    _rule(
        id="text/lone-surrogate", area=Area.STREAMING, level=MUST, p0=True, source=f"{RFC8259} section 8.2; {stream_rule('P0.11')}",
        requirement="Text MUST NOT contain half of a surrogate pair.",
    ),
    _rule(
        id="leak/special", area=Area.STREAMING, level=MUST, causes=("B54", "D14"), source=f"{_CARD}; {KVV}",
        requirement="The model's special tokens MUST NOT reach the client as text, unless the request holds them.",
    ),
    _rule(
        id="leak/tools", area=Area.TOOLS, level=MUST, causes=("B01", "B11", "B31", "B54", "B55", "B60"), source=f"{_CARD}; {KVV}",
        requirement="The model's tool-call markers MUST NOT reach the client as text, unless the request holds them.",
    ),
    _rule(
        id="leak/think", area=Area.REASONING, level=MUST, causes=("D06", "D09", "D10"), source=f"{_CARD}; {KVV}",
        requirement="The model's think tags MUST NOT reach the client as text, unless the request holds them.",
    ),
)  # fmt: skip

BATCH = 64
#: characters shown before what was found
_BEFORE = 80
_QUOTES = "`'\"\\“‘"


@lru_cache(maxsize=64)
def _pattern(markers: tuple[str, ...]) -> re.Pattern[str] | None:
    """One expression for all markers, the longest first."""
    return re.compile("|".join(re.escape(marker) for marker in sorted(markers, key=len, reverse=True))) if markers else None


class Texts:
    __slots__ = ("_broken", "_context", "_groups", "_pattern", "_reach", "_sink")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sink = context.sink
        markers = context.profile.markers
        think = () if context.profile.thinking.inline else markers.think
        self._groups = dict.fromkeys(markers.special, "special") | dict.fromkeys(markers.tools, "tools") | dict.fromkeys(think, "think")
        self._groups.pop("", None)
        self._pattern = _pattern(tuple(self._groups))
        # as far back as a cut marker or an excerpt may reach, so that neither depends on where a batch ended
        self._reach = max(_BEFORE, *(len(marker) - 1 for marker in self._groups)) if self._groups else _BEFORE
        #: U+FFFD seen: slot, position in its text, frame, excerpt; judged at the end, where it is known whether the text was cut
        self._broken: list[tuple[TextSlot, int, Frame, str]] = []

    def add(self, slot: TextSlot, frame: Frame, text: str) -> None:
        slot.frames.append(frame)
        slot.texts.append(text)
        if len(slot.texts) >= BATCH:
            self.scan(slot)

    def whole(self, slot_kind: str, frame: Frame, text: str) -> None:
        """A text that does not stream: a function's name."""
        slot = TextSlot(slot_kind)
        slot.frames, slot.texts = [frame], [text]
        self.scan(slot)

    def scan(self, slot: TextSlot) -> None:
        """Look through what was added since the last scan."""
        if not slot.texts:
            return
        fresh = "".join(slot.texts)
        tail = slot.tail
        joined = tail + fresh
        if "\ufffd" in fresh:
            self._replacement(slot, joined, len(tail))
        if self._pattern is not None:
            for match in self._pattern.finditer(joined):
                if match.end() > len(tail):
                    self._leak(slot, joined, match, len(tail))
            if "```" in joined:
                slot.fences += joined.count("```") - tail.count("```")
        slot.seen += len(fresh)
        slot.last = slot.frames[-1]
        last = self._context.last_frame
        if last is None or last.number < slot.last.number:
            self._context.last_frame = slot.last
        slot.tail = joined[-self._reach :]
        slot.frames.clear()
        slot.texts.clear()

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

    def _replacement(self, slot: TextSlot, joined: str, tail: int) -> None:
        at = joined.find("\ufffd", tail)
        while at >= 0 and len(self._broken) < 1_000:
            self._broken.append((slot, slot.seen + at - tail, self._frame_at(slot, at - tail), joined[max(0, at - _BEFORE) : at + 1]))
            at = joined.find("\ufffd", at + 1)

    def _leak(self, slot: TextSlot, joined: str, match: re.Match[str], tail: int) -> None:
        marker = match.group()
        group = self._groups[marker]
        start = match.start()
        at_start = slot.seen <= tail and not joined[:start].strip()
        closes = group == "think" and marker.startswith("</")
        orphan = closes and slot.opened == 0
        if group == "think" and not closes:
            slot.opened += 1
        if self._context.asked.holds(marker):
            return
        quoted = (start > 0 and joined[start - 1] in _QUOTES) or (slot.fences - joined.count("```", 0, tail) + joined.count("```", 0, start)) % 2 == 1
        # prose and code may speak of a marker: only a bare one is proof, a think tag only where a template would put it
        weak = not marker.startswith("<") or (quoted and slot.kind != "name")
        if group == "think":
            weak = weak or slot.kind != "content" or not (at_start or orphan)
        self._sink.hit(
            f"leak/{group}",
            self._frame_at(slot, match.end() - 1 - tail),
            f"the marker {marker} stands in {slot.kind}",
            excerpt=joined[max(0, start - _BEFORE) : match.end()],
            cap=SHOULD if weak else None,
        )

    @staticmethod
    def _frame_at(slot: TextSlot, position: int) -> Frame:
        """The frame that brought the character at this place of the fresh text."""
        for frame, text in zip(slot.frames, slot.texts, strict=True):
            position -= len(text)
            if position < 0:
                return frame
        return slot.frames[-1]
