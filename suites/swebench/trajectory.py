"""One page an instance: every answer, every command, the patch, the grading. From the steps and their replies; nothing
is run.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from kvv.core import Answered, Case, Command, Done, Exec, Executed, Reply, Step, Verdict
from kvv.rendering.document import Document, DocumentTable, Excerpt, Section

#: characters of one text on the page
TEXT = 12_000
#: characters of all texts of a page's steps together; the store has the rest
PAGE_TEXT = 4_000_000
#: facts that have a place of their own on the page
_APART = frozenset({"patch", "tests_status"})


def page(case: Case, verdict: Verdict, play: Generator[Step, Reply, None] | None, replies: Sequence[Reply]) -> Document:
    """``play`` is the case's own, at its beginning: it says which command each result belongs to. None where it cannot
    be played again.
    """
    work: list[Excerpt] = []
    grading: list[Excerpt] = []
    for number, (step, reply) in enumerate(_pairs(play, replies), 1):
        if isinstance(reply, tuple):
            work += [_said(number, answered) for answered in reply]
        else:
            (grading if isinstance(step, Exec) and step.tree != "work" else work).append(_ran(number, step, reply))
    shown, graded = _within(work, PAGE_TEXT), _within(grading, PAGE_TEXT)
    facts = verdict.facts
    rows = tuple((name, _short(value)) for name, value in facts.items() if name not in _APART)
    return Document(
        title=f"{case.inputs['instance']}: {verdict.outcome.value}{f', {verdict.reason}' if verdict.reason else ''}",
        lead=(verdict.detail,) if verdict.detail else (),
        outcome=verdict.outcome.value,
        excerpt=TEXT,
        sections=(
            Section(title="Facts", tables=(DocumentTable(name="facts", columns=("fact", "value"), rows=rows),)),
            Section(
                title="Issue", excerpts=(Excerpt(line=case.inputs["repo"], texts=(("Issue", case.inputs["task"]),)),)
            ),
            Section(title="Steps", excerpts=shown, left_out=len(work) - len(shown)),
            Section(
                title="Patch",
                excerpts=(Excerpt(line="what was submitted", texts=(("Patch", str(facts.get("patch", ""))),)),),
            ),
            Section(title="Grading", tables=_tests(facts), excerpts=graded, left_out=len(grading) - len(graded)),
        ),
    )


def _within(excerpts: Sequence[Excerpt], limit: int) -> tuple[Excerpt, ...]:
    """The first ones whose texts, as far as they are shown, fit together."""
    kept: list[Excerpt] = []
    for excerpt in excerpts:
        limit -= len(excerpt.line) + sum(min(len(text), TEXT) for _, text in excerpt.texts)
        if limit < 0:
            break
        kept.append(excerpt)
    return tuple(kept)


def _pairs(play: Generator[Step, Reply, None] | None, replies: Sequence[Reply]) -> Iterator[tuple[Step | None, Reply]]:
    if play is None:
        yield from ((None, reply) for reply in replies)
        return
    step = next(play)
    for reply in replies:
        if isinstance(step, Done):
            return
        yield step, reply
        step = play.send(reply)


def _said(number: int, answered: Answered) -> Excerpt:
    said = answered.observation
    calls = "\n".join(f"{call.name}({call.arguments})" for call in said.tool_calls)
    texts = (
        ("Reasoning", said.reasoning),
        ("Answer", said.answer),
        ("Calls", calls),
        ("Error", said.error.message if said.error else ""),
    )
    first = next((text.strip().split("\n")[0] for _, text in texts if text.strip()), "nothing")
    tokens = f"{said.tokens('prompt_tokens') or 0:,} + {said.tokens('completion_tokens') or 0:,} tokens"
    spent = f"{tokens}, {answered.exchange.timing.total_ms / 1000:.1f} s"
    return Excerpt(
        line=f"{number}. model: {first[:160]} ({said.finish_reason}; {spent})",
        texts=tuple(pair for pair in texts if pair[1]),
    )


def _ran(number: int, step: Step | None, done: Executed) -> Excerpt:
    command = (
        step.command
        if isinstance(step, Exec)
        else Command(argv=("(told where the agent that gave the command is installed)",))
    )
    script = command.argv[-1] if command.argv[-3:-1] == ("bash", "-c") else " ".join(command.argv)
    # what tries the environment is told apart from what grades the agent's patch
    tree = f"{step.tree} " if isinstance(step, Exec) and step.shared else ""
    code = "timed out" if done.exit_code is None else f"exit code {done.exit_code}"
    left_out = f"\n[{done.elided} characters were left out]" if done.elided else ""
    texts = (("Command", script), ("Standard input", command.stdin), ("Output", done.output + left_out))
    return Excerpt(
        line=f"{number}. {tree}$ {script[:160]} ({code}; {done.seconds:.1f} s)",
        texts=tuple(pair for pair in texts if pair[1]),
    )


def _tests(facts: Any) -> tuple[DocumentTable, ...]:
    status = facts.get("tests_status")
    if not status:
        return ()
    rows = tuple(
        (group, test, outcome)
        for group, lists in status.items()
        for outcome in ("failure", "success")
        for test in lists[outcome]
    )
    return (DocumentTable(name="tests", columns=("list", "test", "outcome"), rows=rows),)


def _short(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
