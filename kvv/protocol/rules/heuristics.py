"""Section: heuristics. What usually means a broken server, but is a matter of likelihood: never a must."""

from __future__ import annotations

import re
from functools import partial

from kvv.core import Area, Choice, Level, Observation
from kvv.protocol.rules.base import DIFFERS, OWN, RuleInfo
from kvv.protocol.rules.track import ChoiceTrack, RuleContext

_rule = partial(RuleInfo, area=Area.DEGRADATION, level=Level.SHOULD, kind=DIFFERS, section="heuristics", source=OWN)
RULES = (
    _rule(
        id="heuristic/repetition",
        causes=("E04", "J08"),
        requirement="An answer SHOULD NOT end in a passage that repeats itself over and over.",
    ),
    _rule(
        id="heuristic/junk",
        causes=("H09", "J12", "J13"),
        requirement="An answer SHOULD NOT consist mostly of one character.",
    ),
    _rule(
        id="heuristic/reasoning-is-answer",
        area=Area.REASONING,
        causes=("C32",),
        requirement="Reasoning SHOULD NOT equal the answer.",
    ),
    _rule(
        id="heuristic/answer-in-reasoning",
        area=Area.REASONING,
        causes=("A13", "D04", "D09", "D10", "E02"),
        requirement="An answer that finished with stop SHOULD NOT be empty beside its reasoning.",
    ),
    _rule(
        id="heuristic/empty-answer",
        causes=("B32", "B33"),
        requirement="An answer that finished with stop SHOULD carry text or a tool call.",
    ),
    _rule(
        id="heuristic/breaks-off",
        causes=("H07",),
        requirement="An answer that finished with stop SHOULD NOT break off in a sentence or in a code block.",
    ),
    _rule(
        id="heuristic/language-mixing",
        level=Level.MAY,
        requirement="An answer in one script MAY be expected not to switch to another within words.",
    ),
)

#: a loop counts when its last passage came this often in a row and covers this many characters
LOOP_TIMES, LOOP_CHARACTERS = 4, 600
_LOOP_WINDOW = 8_000
#: characters looked at, and the share of one of them that makes junk
_JUNK_WINDOW, _JUNK_SHARE = 20_000, 0.6
#: three classes of the lowest bytes of characters, about as full as each other in any writing; no blank of Unicode has
#: any of these bytes
_CLASSES = (
    b"ehrlmwpbzEHRLMWPBZ0369.-" + bytes(range(161, 193)),
    b"tnsduyfkxTNSDUYFKX147,:[]" + bytes(range(193, 225)),
    b"aoigcvjqAOIGCVJQ258\"'{}" + bytes(range(225, 256)),
)
_BREAK = re.compile(r"(?:,|\(|\b(?:the|a|an|and|or|of|to|in|with|for|that|is))\s*$")
_MIXED = re.compile(r"[A-Za-z]{2}[\u4e00-\u9fff]{1,3}[A-Za-z]{2}")


class Heuristics:
    __slots__ = ("_context", "_sink")

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._sink = context.sink

    def finish(self, observation: Observation, complete: bool) -> None:
        for choice in observation.choices:
            track = self._context.choices.get(choice.index)
            if track is None:
                continue
            for name, text in (("answer", choice.answer), ("reasoning", choice.reasoning)):
                if text:
                    self._degenerate(track, name, text)
            if complete and choice.finish_reason == "stop":
                self._ending(track, choice)

    def _degenerate(self, track: ChoiceTrack, name: str, text: str) -> None:
        unit = loop_of(text)
        if unit:
            self._sink.hit(
                "heuristic/repetition",
                track.finish_frame,
                f"the {name} ends in a loop of {len(unit)} characters",
                excerpt=unit[:200],
            )
            return
        common = mostly_of(text)
        if common:
            self._sink.hit("heuristic/junk", track.finish_frame, f"the {name} is mostly {common!r}", excerpt=text[:200])

    def _ending(self, track: ChoiceTrack, choice: Choice) -> None:
        answer, reasoning = (choice.answer or "").strip(), (choice.reasoning or "").strip()
        hit = self._sink.hit
        if not answer and not choice.tool_calls and not choice.refusal:
            if reasoning:
                hit(
                    "heuristic/answer-in-reasoning",
                    track.finish_frame,
                    "the answer is empty beside its reasoning",
                    excerpt=reasoning[-300:],
                )
            elif self._context.asked.cap != 1:
                hit("heuristic/empty-answer", track.finish_frame, "neither text nor a tool call came")
            return
        if len(answer) >= 20 and answer == reasoning:
            hit(
                "heuristic/reasoning-is-answer",
                track.finish_frame,
                "reasoning and answer are the same text",
                excerpt=answer[:200],
            )
        if self._context.asked.stops:
            return
        if len(answer) >= 200 and (_BREAK.search(answer[-40:]) or answer.count("```") % 2):
            hit(
                "heuristic/breaks-off",
                track.finish_frame,
                "the answer breaks off, yet finish_reason is stop",
                excerpt=answer[-200:],
            )
        if len(answer) < 100 or answer.isascii() or not self._context.asked.ascii_only:
            return
        mixed = _MIXED.search(answer)
        if mixed:
            around = answer[max(0, mixed.start() - 40) : mixed.end() + 40]
            hit("heuristic/language-mixing", track.finish_frame, "the script changes within a word", excerpt=around)


def mostly_of(text: str) -> str:
    """The character that makes up more than 0.6 of the beginning of ``text``, blanks left out; "" when there is none,
    or it is a digit.
    """
    head = text[:_JUNK_WINDOW]
    if len(head) < 40 or _varied(head):
        return ""
    letters = "".join(head.split())
    if len(letters) < 40:
        return ""
    # the most frequent character of any writing is far below half of it
    common = max(sorted(set(letters[:64])), key=letters.count)
    return common if letters.count(common) > len(letters) * _JUNK_SHARE and not common.isdecimal() else ""


def _varied(head: str) -> bool:
    """Whether a few counts already prove that no character has the share of junk: without it, each answer costs dozens
    of them.

    A character with more than 0.6 of the letters leaves less than 0.4 to all the others together. So none has when all
    classes of characters but the fullest hold 0.4: whichever class it is in, the others are too full.
    """
    low = head.encode("ascii") if head.isascii() else head.encode("utf-32-le", "surrogatepass")[::4]
    counts = [len(low) - len(low.translate(None, members)) for members in _CLASSES]
    return sum(counts) - max(counts) >= len(head) * (1 - _JUNK_SHARE)


def loop_of(text: str) -> str:
    """The passage that the end of ``text`` repeats, "" when there is none."""
    tail = text[-_LOOP_WINDOW:]
    if len(tail) < LOOP_CHARACTERS:
        return ""
    probe = tail[-64:]
    before = tail.rfind(probe, 0, len(tail) - 1)
    if before < 0:
        return ""
    period = len(tail) - 64 - before
    covered = max(LOOP_TIMES * period, LOOP_CHARACTERS)
    if covered > len(tail):
        return ""
    unit = tail[-period:]
    # blank padding and ruled lines are layout, not loops
    if len(set(unit.strip())) < 3:
        return ""
    return unit if tail[-covered:-period] == tail[-covered + period :] else ""
