"""The suite ``swebench``: resolve issues of real repositories through a shell, graded by the repositories' own tests in
a sandbox.

Every model call and every command is a step: recorded, replayed offline to the same patch and verdict. The agent
follows mini-swe-agent's published protocol in words of our own; the grader follows the official harness.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from kvv.cases.answers import KeyEntry
from kvv.cases.suite import Column, Context, Result, Suite, SuiteKind
from kvv.core import Area, Case, Dataset, Done, Evidence, History, Level, Outcome, Reply, Stat, Step, Verdict
from kvv.sandbox.adapters import AdapterError, check_played
from kvv.sandbox.adapters.bridge import Plays
from kvv.suites.swebench import rows
from kvv.suites.swebench.agent import Trajectory, agent
from kvv.suites.swebench.controls import Environment, try_environment
from kvv.suites.swebench.grading import Graded, grade, official_report
from kvv.suites.swebench.harbor import collect, grade_task
from kvv.suites.swebench.instance import inputs_of, variant_of
from kvv.suites.swebench.mini import NAME as MINI
from kvv.suites.swebench.mini import mini_agent
from kvv.suites.swebench.official import OPEN_REASONS, grade_officially

SOURCE = "https://github.com/SWE-bench/SWE-bench"

REQUIREMENT = (
    "An agent that works through the endpoint resolves the issue: tests that failed pass, and those that passed"
    " still do."
)

#: reasons of a grader that say nothing about the patch
UNDECIDED = OPEN_REASONS | {"verifier-crashed", "verifier-without-reports"}
#: causes that are bounds of the sandbox
BOUNDS = frozenset({"out-of-memory", "out-of-disk"})
#: characters of a patch that a verdict's facts keep
PATCH_LIMIT = 400_000


class SwebenchSuite(Suite):
    """One case per instance. The agent calls a bash tool, or, in the variant ``text``, writes one fenced block an
    answer.
    """

    id = "swebench"
    title = "SWE-bench (coding agent)"
    kind = SuiteKind.BENCHMARK
    areas = (Area.ACCURACY,)
    version = "1"
    dataset = "swebench"
    counted = "resolved"
    # the public leaderboard's SWE figures are DeepSWE's
    columns = (Column(suite="swebench", title="DeepSWE", edition="DeepSWE", whole=113, key="deepswe"),)
    column_title, column_rank, edition = "SWE", 40, "benchmark"
    spread = 0.65 * 0.35 * 0.2
    needs = ("sandbox",)

    def __init__(self) -> None:
        self._plays = Plays()

    def data_variant(self, variant: str) -> str:
        """``lite``, ``text``, ``lite-text``: a set, the agent's mode, or both. Other suites' variants are not ours."""
        chosen = variant_of(variant)
        return "" if chosen is None or not variant else chosen[0]

    def cases(self, context: Context) -> list[Case]:
        """Instance ids are the public ones."""
        if context.dataset is None:
            return []
        return [
            Case(
                id=case_id(row["instance_id"]),
                suite=self.id,
                area=Area.ACCURACY,
                level=Level.SHOULD,
                requirement=REQUIREMENT,
                source=SOURCE,
                since="0.1.0",
                cluster=row["repo"],
                inputs=inputs_of(row, context),
            )
            for row in context.dataset.rows
        ]

    def step(self, case: Case, history: History) -> Step:
        """What the case's play asks next when it has heard all replies from its beginning: that depends on nothing
        else.
        """
        return self._plays.step(case, history, _play)

    def answer_key(self, dataset: Dataset) -> list[KeyEntry]:
        """From the columns ``right`` and ``wrong`` of our own instances: the commands of an agent that resolves it, and
        of one that does not.
        """
        return [
            KeyEntry(
                suite=self.id,
                case=case_id(row["instance_id"]),
                prompt=row["problem_statement"].strip("\n"),
                right_turns=tuple(row["right"]),
                wrong_turns=tuple(row["wrong"]),
                ease=1.0 if row.get("ease") is None else float(row["ease"]),
            )
            for row in dataset.rows
            if row.get("right") and row.get("wrong")
        ]

    def files(self, results: Iterable[Result], context: Context) -> Iterator[tuple[str, str]]:
        """``predictions.jsonl`` and one ``report.json`` an instance, as the official harness writes them: anybody can
        grade again.

        And a page with every step of the agent.
        """
        predictions: dict[int, list[str]] = {}
        for result in results:
            case, verdict = result.case, result.verdict
            instance, patch = case.inputs["instance"], verdict.facts.get("patch")
            folder = rows.folder_of(case, context.model)
            if rows.has_page(verdict):
                # here: naming the suites needs no templates
                from kvv.rendering.document import html
                from kvv.suites.swebench.trajectory import page

                yield f"{folder}/{rows.PAGE}", html(page(case, verdict, _told_again(case), result.replies()))
            if patch is None:
                continue
            line = {"instance_id": instance, "model_name_or_path": context.model, "model_patch": patch}
            predictions.setdefault(case.sample, []).append(json.dumps(line, ensure_ascii=False))
            yield f"{folder}/report.json", json.dumps(official_report(instance, patch, verdict.facts), indent=4) + "\n"
            yield f"{folder}/patch.diff", patch
        for sample, lines in sorted(predictions.items()):
            yield f"swebench/predictions{f'.{sample}' if sample else ''}.jsonl", "".join(f"{line}\n" for line in lines)

    def metrics(self, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
        return rows.metrics(self.id, self.version, verdicts, context)


def case_id(instance: str) -> str:
    return f"swebench/{quote(instance, safe='')}"


def _play(case: Case) -> Generator[Step, Reply, None]:
    if case.inputs["unusable"]:
        yield Done(verdict=_skip(case))
        return
    tried = Environment()
    if case.inputs.get("controls"):
        tried = yield from try_environment(case)
        if tried.reason:
            yield Done(verdict=_broken(case, tried))
            return
    went = yield from (mini_agent if case.inputs["agent"].startswith(f"{MINI} ") else agent)(case)
    if went.verdict is not None:
        yield Done(verdict=_ended_by_the_endpoint(case, went))
        return
    if case.inputs["commits"]:
        # only commits count, however the agent ended
        went.submission, failed = yield from collect(case)
        graded = Graded(reason=failed) if failed else (yield from grade_task(case, went.submission))
    else:
        graded = yield from (grade_officially if case.inputs.get("official") else grade)(case, went.submission)
    yield Done(verdict=_verdict(case, went, graded, tried))


def _told_again(case: Case) -> Generator[Step, Reply, None] | None:
    """The case's play for a page, None where the program that played is not here any more."""
    try:
        check_played(case.inputs["agent"])
    except AdapterError:
        return None
    return _play(case)


def _skip(case: Case) -> Verdict:
    why, version = case.inputs["unusable"], SwebenchSuite.version
    return Verdict(
        case=case.id, sample=case.sample, outcome=Outcome.SKIP, reason="unusable-instance", detail=why, scorer=version
    )


def _broken(case: Case, tried: Environment) -> Verdict:
    """Nobody was asked anything."""
    return Verdict(
        case=case.id,
        sample=case.sample,
        outcome=Outcome.INCONCLUSIVE,
        reason=tried.reason,
        detail=tried.detail[:500],
        facts=tried.facts(),
        scorer=SwebenchSuite.version,
    )


def _ended_by_the_endpoint(case: Case, went: Trajectory) -> Verdict:
    """What the outcome table says of the request, with what the agent had done until then."""
    found = went.verdict
    assert found is not None
    values = {"resolved": 0.0, "official_resolved": 0.0} if found.outcome is Outcome.FAIL else {}
    return Verdict(
        case=case.id,
        sample=case.sample,
        outcome=found.outcome,
        reason=found.reason,
        detail=found.detail,
        values=values,
        facts=went.facts(),
        evidence=found.evidence,
        scorer=SwebenchSuite.version,
        truncated=went.truncated,
    )


def _verdict(case: Case, went: Trajectory, graded: Graded, tried: Environment) -> Verdict:
    """An agent that ended without submitting has an empty patch; its exit says why. A time-out under emulation says
    nothing.
    """
    submitted = went.exit == "submitted" or case.inputs["commits"]
    reason = graded.reason if submitted else went.exit
    open_reason = _open_reason(graded, proven=tried.proven)
    undecided = bool(open_reason)
    outcome = Outcome.INCONCLUSIVE if undecided else Outcome.PASS if graded.resolved else Outcome.FAIL
    return Verdict(
        case=case.id,
        sample=case.sample,
        outcome=outcome,
        reason=open_reason or reason,
        detail=graded.detail if submitted else _ending(went),
        values={} if undecided else {"resolved": float(graded.resolved), "official_resolved": float(graded.official)},
        facts=went.facts() | _facts(case, went, graded) | tried.facts() | ({"cause": open_reason} if undecided else {}),
        evidence=() if graded.resolved or not went.last else (Evidence(exchange=went.last),),
        scorer=SwebenchSuite.version,
        truncated=went.truncated,
    )


def _ending(went: Trajectory) -> str:
    said = f": {went.refusal}" if went.refusal else ""
    return f"the agent ended with {went.exit} after {went.turns} steps{said}"[:500]


def _open_reason(graded: Graded, *, proven: bool) -> str:
    """Why nothing was found out about the patch, "" where something was.

    Memory and disk are our bounds, which the official harness does not have. What else kept the tests from running is
    the patch's doing only where a right patch is known to be resolved in the same place.
    """
    if graded.cause and (not proven or graded.cause in BOUNDS):
        return graded.cause
    if graded.emulated and graded.reason == "test-timeout":
        return "emulated-timeout"
    return graded.reason if graded.reason in UNDECIDED else ""


def _facts(case: Case, went: Trajectory, graded: Graded) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "patch": went.submission[:PATCH_LIMIT],
        "patch_characters": len(went.submission),
        "applied": graded.applied,
        "official_resolved": graded.official,
        "tampered": graded.tampered,
        "conflicting": graded.conflicting,
        "tests_status": graded.tests,
        "test_exit_code": graded.exit_code,
        "test_s": round(graded.seconds, 3),
    }
    if went.emulated or graded.emulated:
        facts["emulated"] = True
    return facts | ({"known_bad": case.inputs["known_bad"]} if case.inputs["known_bad"] else {})


__all__: Sequence[str] = ("SwebenchSuite", "case_id")
