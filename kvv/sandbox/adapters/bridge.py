"""Imperative code as a play: it runs on a thread, and blocks whenever it wants something that the scheduler has to
do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from kvv.core import Case, Done, History, Reply, Step

T = TypeVar("T")

#: performs a step: blocks until its reply is there
Perform = Callable[[Step], Reply]

#: plays that are kept at the end of their history; the others begin again
KEPT = 256


class _Closed(BaseException):
    """Nobody waits for this play any more. No Exception: the code on the thread must not take it for one of its own."""


@dataclass(slots=True)
class _Returned(Generic[T]):
    value: T


@dataclass(slots=True)
class _Raised:
    error: BaseException


def play_on_thread(work: Callable[[Perform], T]) -> Generator[Step, Reply, T]:
    """``work`` on a thread of its own, as a generator: steps out, replies in, its result in the end, or its exception.

    The thread computes only while the generator is asked for its next step, so that the same replies always lead to the
    same steps. Closing the generator ends the thread at the step where it waits.
    """
    steps: SimpleQueue[Step | _Returned[T] | _Raised] = SimpleQueue()
    replies: SimpleQueue[Reply | None] = SimpleQueue()

    def perform(step: Step) -> Reply:
        steps.put(step)
        reply = replies.get()
        if reply is None:
            raise _Closed
        return reply

    def run() -> None:
        try:
            steps.put(_Returned(work(perform)))
        except _Closed:
            return
        except BaseException as error:  # noqa: BLE001 it belongs to whoever asked for the next step
            steps.put(_Raised(error))

    Thread(target=run, name="kvv-adapter", daemon=True).start()
    try:
        while True:
            match steps.get():
                case _Returned(value=value):
                    return value
                case _Raised(error=error):
                    raise error
                case step:
                    replies.put((yield step))
    finally:
        replies.put(None)


@dataclass(slots=True)
class _Live:
    case: Case
    play: Generator[Step, Reply, None]
    step: Step
    fed: list[Reply] = field(default_factory=list)

    def begins(self, case: Case, history: Sequence[Reply]) -> bool:
        """Whether it has heard a part of this history and nothing else. The same objects: a history is not compared,
        only recognised.
        """
        same = self.case.inputs is case.inputs and len(self.fed) <= len(history)
        return same and all(mine is theirs for mine, theirs in zip(self.fed, history, strict=False))


class Plays:
    """The next step after a history, by a play that may still stand at the end of an earlier part of it.

    A cache and no more: a play whose history is another one, or that was forgotten, begins again and hears all replies.
    """

    def __init__(self) -> None:
        self._live: OrderedDict[str, _Live] = OrderedDict()

    def step(self, case: Case, history: History, begin: Callable[[Case], Generator[Step, Reply, None]]) -> Step:
        """``begin`` makes the case's play anew."""
        live = self._live.pop(case.key, None)
        if live is None or not live.begins(case, history):
            if live is not None:
                live.play.close()
            play = begin(case)
            live = _Live(case, play, next(play))
        for reply in history[len(live.fed) :]:
            live.step = live.play.send(reply)
            live.fed.append(reply)
        if isinstance(live.step, Done):
            live.play.close()
            return live.step
        self._live[case.key] = live
        while len(self._live) > KEPT:
            self._live.popitem(last=False)[1].play.close()
        return live.step
