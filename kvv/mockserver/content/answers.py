"""The answer key: which entry answers a prompt, whether this time rightly, and how often that was delivered."""

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

from kvv.mockserver.config import JsonObject, KeyedAnswer, Reply
from kvv.mockserver.validation.request import ChatRequest, Message

# Suites put their instruction after the question; a prompt that ends with one of them is also looked up without it.
_INSTRUCTIONS = (
    "Please reason step by step, and put your final answer within \\boxed{}.",
    "Put your final answer within \\boxed{}.",
)
_REMEMBERED = 4096


def draw(seed: int, text: str, ask: int) -> float:
    """A number in [0, 1), a keyed hash of the prompt's text and of how many answers to it came before."""
    key = hashlib.sha256(f"{seed}\0{ask}\0".encode() + text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(key[:7], "big") / 2**56


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The entry that answers a request and the ask index that it used; ``right`` says which of its replies is given."""

    answer: KeyedAnswer
    ask: int
    right: bool

    @property
    def reply(self) -> Reply:
        return self.answer.right if self.right else self.answer.wrong


class AnswerKey:
    """Finds the entry for a message. Exact texts are found by hash, others by search, the longest prompt first."""

    def __init__(self, answers: tuple[KeyedAnswer, ...]) -> None:
        self._exact: dict[bytes, list[KeyedAnswer]] = defaultdict(list)
        for answer in answers:
            self._exact[_digest(answer.prompt.strip())].append(answer)
        self._longest = sorted(
            (answer for answer in answers if answer.prompt.strip()), key=lambda answer: -len(answer.prompt)
        )
        self._lines: dict[str, list[KeyedAnswer]] = defaultdict(list)
        for answer in self._longest:
            self._lines[_longest_line(answer.prompt)].append(answer)
        self._found: OrderedDict[bytes, KeyedAnswer | None] = OrderedDict()

    def find(self, message: Message | None) -> KeyedAnswer | None:
        """The entry whose prompt this message contains (and whose images it holds), or None."""
        if message is None or not self._longest:
            return None
        text, digests = message.text, tuple(image.digest for image in message.images)
        key = _digest("\0".join((text, *digests)))
        if key not in self._found:
            self._found[key] = self._search(text, digests)
            if len(self._found) > _REMEMBERED:
                self._found.popitem(last=False)
        return self._found[key]

    def find_scripted(self, request: ChatRequest) -> KeyedAnswer | None:
        """An agent's entry for a conversation whose task stands in its first user message: later ones are what its
        commands gave.
        """
        first = next((message for message in request.messages if message.role == "user"), None)
        found = self.find(first)
        return found if found is not None and found.right.turns else None

    def _search(self, text: str, digests: tuple[str, ...]) -> KeyedAnswer | None:
        for variant in _without_instruction(text):
            if found := _fitting(self._exact.get(_digest(variant), ()), digests):
                return found
        lines = {line.strip() for line in text.splitlines()}
        candidates = [answer for line in lines for answer in self._lines.get(line, ()) if answer.prompt in text]
        if found := _fitting(sorted(candidates, key=lambda answer: -len(answer.prompt)), digests):
            return found
        return _fitting((answer for answer in self._longest if answer.prompt in text), digests)


def _fitting(answers: Iterable[KeyedAnswer], digests: tuple[str, ...]) -> KeyedAnswer | None:
    """The first entry that wants these images; one that wants none comes only if no entry names them."""
    loose: KeyedAnswer | None = None
    for answer in answers:
        if answer.images == digests and digests:
            return answer
        if not answer.images and loose is None:
            loose = answer
            if not digests:
                break
    return loose


def _without_instruction(text: str) -> list[str]:
    stripped = text.strip()
    variants = [stripped]
    variants.extend(stripped[: -len(end)].strip() for end in _INSTRUCTIONS if stripped.endswith(end))
    return variants


def _longest_line(text: str) -> str:
    return max((line.strip() for line in text.splitlines()), key=len, default="")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Asks:
    """Hands out ask indices per prompt. An index that was not used up (the client went away) is handed out again,
    so that n delivered answers always are the draws 0 to n-1, whatever failed in between."""

    def __init__(self) -> None:
        self._next: dict[bytes, int] = {}
        self._returned: dict[bytes, list[int]] = {}
        self._lock = Lock()

    def take(self, text: str) -> int:
        """The lowest free index of this prompt."""
        key = _digest(text)
        with self._lock:
            if spare := self._returned.get(key):
                return spare.pop(0)
            index = self._next.get(key, 0)
            self._next[key] = index + 1
            return index

    def give_back(self, text: str, index: int) -> None:
        """Free an index whose answer was not delivered."""
        key = _digest(text)
        with self._lock:
            self._returned[key] = sorted([*self._returned.get(key, ()), index])


class Stats:
    """The server's own counts; safe to read from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests = 0
        self._completions = 0
        self._by_status: dict[str, int] = defaultdict(int)
        self._answers: dict[str, dict[str, int]] = {}

    def request(self) -> None:
        with self._lock:
            self._requests += 1

    def status(self, status: int) -> None:
        with self._lock:
            self._by_status[str(status)] += 1

    def delivered(self, drawn: Drawn | None) -> None:
        """Count a completion that is handed to the connection in full."""
        self._count(drawn, 1)

    def revoked(self, drawn: Drawn | None) -> None:
        """Take a counted completion back."""
        self._count(drawn, -1)

    def _count(self, drawn: Drawn | None, step: int) -> None:
        with self._lock:
            self._completions += step
            if drawn is not None:
                suite = self._answers.setdefault(drawn.answer.suite, {"asked": 0, "right": 0})
                suite["asked"] += step
                suite["right"] += step * int(drawn.right)

    def snapshot(self) -> JsonObject:
        """A copy of all counts, as GET /kvv/stats gives it."""
        with self._lock:
            return {
                "requests": self._requests,
                "completions": self._completions,
                "answers": {suite: dict(counts) for suite, counts in self._answers.items()},
                "by_status": dict(self._by_status),
            }
