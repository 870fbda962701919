"""What the sections remember of one answer while its frames go by."""

from __future__ import annotations

from kvv.core import Frame
from kvv.profiles.profile import Profile
from kvv.protocol.rules.asked import Asked
from kvv.protocol.rules.base import Sink


class TextSlot:
    """One stream of text (content, reasoning, or one call's arguments) with what was not scanned yet."""

    __slots__ = ("fences", "frames", "kind", "last", "opened", "seen", "tail", "texts")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.frames: list[Frame] = []
        self.texts: list[str] = []
        #: the last scanned characters
        self.tail = ""
        #: scanned characters, and the last frame that brought any
        self.seen = 0
        self.last: Frame | None = None
        self.fences = 0
        self.opened = 0


class CallTrack:
    """One tool call as its chunks came."""

    __slots__ = ("frame", "id", "index", "last", "named", "null_frame", "text")

    def __init__(self, index: int | None, frame: Frame) -> None:
        self.index = index
        #: where it began, and the last chunk that was fed
        self.frame = frame
        self.last = frame
        self.id: str | None = None
        self.named = False
        #: a chunk whose arguments are null
        self.null_frame: Frame | None = None
        self.text = TextSlot("arguments")

    @property
    def end(self) -> Frame:
        """Its last chunk, once all text was scanned."""
        return self.last if self.text.last is None or self.text.last.number < self.last.number else self.text.last


class ChoiceTrack:
    """One choice."""

    __slots__ = (
        "boundaries",
        "calls",
        "content",
        "deltas",
        "finish",
        "finish_frame",
        "finishes",
        "index",
        "last_call",
        "logprobs",
        "open_calls",
        "phase",
        "reasoning",
        "role",
    )

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.deltas = 0
        self.role = False
        #: "", reasoning, content or tools: what the last non-empty delta carried
        self.phase = ""
        #: empty reasoning strings after reasoning text and before content
        self.boundaries = 0
        self.content = TextSlot("content")
        self.reasoning = TextSlot("reasoning")
        self.calls: list[CallTrack] = []
        self.open_calls: dict[int | None, CallTrack] = {}
        self.last_call: CallTrack | None = None
        self.finish: object = None
        self.finishes = 0
        self.finish_frame: Frame | None = None
        self.logprobs = 0


class RuleContext:
    """One exchange as every section sees it."""

    __slots__ = (
        "asked",
        "body_frame",
        "choices",
        "done",
        "error_frame",
        "finished",
        "first_frame",
        "last_frame",
        "misplaced",
        "objects",
        "profile",
        "sink",
        "status",
    )

    def __init__(self, profile: Profile, asked: Asked, sink: Sink) -> None:
        self.profile = profile
        self.asked = asked
        self.sink = sink
        self.status: int | None = None
        self.choices: dict[int | None, ChoiceTrack] = {}
        #: completion objects seen (chunks, or the one body)
        self.objects = 0
        self.first_frame: Frame | None = None
        self.last_frame: Frame | None = None
        self.body_frame: Frame | None = None
        self.error_frame: Frame | None = None
        self.done: Frame | None = None
        #: a choice came under an index that is not one of those asked for
        self.misplaced = False
        #: choices whose finish_reason came
        self.finished = 0

    @property
    def streamed(self) -> bool:
        return self.body_frame is None
