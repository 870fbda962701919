"""Imperative code as a play: steps in order, exceptions come out, nothing is left running, and a kept play is only a
cache.
"""

from __future__ import annotations

import threading
import time
import tomllib
from collections.abc import Generator
from pathlib import Path

import pytest

from kvv.core import Area, Case, Command, Done, Exec, Executed, Level, Outcome, Reply, Step, Verdict
from kvv.sandbox.adapters import AGENTS, GRADERS, AdapterError, check_installed, identity
from kvv.sandbox.adapters.bridge import KEPT, Perform, Plays, play_on_thread


def run(name: str) -> Exec:
    return Exec(command=Command(argv=(name,)))


def said(text: str) -> Executed:
    return Executed(exit_code=0, output=text)


def case(name: str = "c", **inputs: object) -> Case:
    return Case(
        id=name,
        suite="s",
        area=Area.ACCURACY,
        level=Level.SHOULD,
        requirement="r",
        source="s",
        since="0",
        inputs=inputs,
    )


def told(step: Step) -> str:
    assert isinstance(step, Exec)
    return step.command.argv[0]


def two_commands(perform: Perform) -> str:
    first = perform(run("one"))
    assert isinstance(first, Executed)
    second = perform(run(f"two after {first.output}"))
    assert isinstance(second, Executed)
    return second.output


def adapters() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kvv-adapter"]


def gone(before: int) -> bool:
    end = time.monotonic() + 5
    while len(adapters()) > before and time.monotonic() < end:
        time.sleep(0.01)
    return len(adapters()) <= before


def test_each_call_is_a_step_and_the_result_comes_last() -> None:
    play = play_on_thread(two_commands)
    assert told(next(play)) == "one"
    assert told(play.send(said("a"))) == "two after a"
    with pytest.raises(StopIteration) as end:
        play.send(said("b"))
    assert end.value.value == "b"


def test_an_exception_of_the_code_comes_out_where_its_next_step_is_asked_for() -> None:
    def broken(perform: Perform) -> None:
        perform(run("one"))
        raise KeyError("x")

    play = play_on_thread(broken)
    next(play)
    with pytest.raises(KeyError, match="x"):
        play.send(said(""))


def test_a_closed_play_ends_its_thread_although_the_code_catches_every_exception() -> None:
    def stubborn(perform: Perform) -> None:
        while True:
            try:
                perform(run("again"))
            except Exception:  # noqa: BLE001, S112 as libraries do
                continue

    before = len(adapters())
    play = play_on_thread(stubborn)
    next(play)
    assert len(adapters()) == before + 1
    play.close()
    assert gone(before)


def test_a_play_that_nobody_holds_any_more_ends_its_thread() -> None:
    before = len(adapters())
    play = play_on_thread(two_commands)
    next(play)
    del play
    assert gone(before)


class Begun:
    """Counts how often a play begins."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, case: Case) -> Generator[Step, Reply, None]:
        self.times += 1
        result = yield from play_on_thread(two_commands)
        yield Done(verdict=Verdict(case=case.id, sample=0, outcome=Outcome.PASS, detail=result))


def test_a_growing_history_goes_on_and_another_one_begins_again_with_the_same_step() -> None:
    plays, begun, one = Plays(), Begun(), case()
    a, b = said("a"), said("b")
    assert told(plays.step(one, [], begun)) == "one"
    assert told(plays.step(one, [a], begun)) == "two after a"
    assert begun.times == 1
    assert told(plays.step(one, [a], begun)) == "two after a"
    assert begun.times == 1
    assert told(plays.step(one, [b], begun)) == "two after b"
    assert begun.times == 2
    assert told(plays.step(one, [], begun)) == "one"
    assert begun.times == 3
    done = plays.step(one, [a, b], begun)
    assert isinstance(done, Done)
    assert done.verdict.detail == "b"
    assert isinstance(plays.step(one, [a, b], begun), Done)


def test_a_case_with_the_same_name_and_other_inputs_has_a_play_of_its_own() -> None:
    plays, begun = Plays(), Begun()
    plays.step(case(x=1), [], begun)
    plays.step(case(x=2), [], begun)
    assert begun.times == 2


def test_plays_beyond_the_bound_are_closed_and_begin_again_when_they_are_asked() -> None:
    before, plays, begun = len(adapters()), Plays(), Begun()
    cases = [case(str(n)) for n in range(KEPT + 3)]
    for each in cases:
        plays.step(each, [], begun)
    assert gone(before + KEPT)
    assert told(plays.step(cases[0], [said("a")], begun)) == "two after a"
    assert begun.times == KEPT + 4


def test_what_is_asked_for_is_what_our_extras_ask_for() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    for name, library in (*AGENTS.items(), *GRADERS.items()):
        assert extras[name] == [f"{library.package}{library.versions}"]


def test_what_is_not_installed_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("kvv.sandbox.adapters.version", absent)
    assert identity(AGENTS, None) == identity(AGENTS, "kvv") == ""
    with pytest.raises(
        AdapterError, match=r"mini-swe-agent is not installed \(pip install 'mini-swe-agent>=2\.4,<3'\)"
    ):
        identity(AGENTS, "mini")
    with pytest.raises(AdapterError, match=r"mini-swe-agent 2\.4\.6 is needed, mini-swe-agent is not installed"):
        check_installed("mini-swe-agent 2.4.6")
    monkeypatch.setattr("kvv.sandbox.adapters.version", lambda _: "2.5.0")
    assert identity(AGENTS, "mini") == "mini-swe-agent 2.5.0"
    with pytest.raises(AdapterError, match=r"2\.4\.6 is needed, mini-swe-agent is 2\.5\.0"):
        check_installed("mini-swe-agent 2.4.6")
    check_installed("mini-swe-agent 2.5.0")
