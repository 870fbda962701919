"""`kvv gate`: did it get worse than what was accepted?"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from kvv.analysis import UnlikeRuns, compare, differences, find_refused
from kvv.analysis.compare import DiscordantCase
from kvv.analysis.findings import rule_lines
from kvv.analysis.gate_report import as_json, document, workflow_commands
from kvv.analysis.regression import (
    Confirmation,
    Drift,
    GateResult,
    answer_changes,
    contract_changes,
    decide_lines,
    drift_of,
    drift_outcomes,
    false_alarms,
    outcome_of_lines,
    repeated_drift,
)
from kvv.cases.suite import SuiteKind
from kvv.cli.verbs.compare import allowed_kinds
from kvv.cli.verbs.confirm import bounds_of, check_bounds, remeasure, what_alarmed
from kvv.cli.verbs.documents import put
from kvv.core import Outcome
from kvv.core.lazy import numpy as np
from kvv.decision import Decision
from kvv.planning.config import ConfigError
from kvv.planning.policy_choice import choose_policy
from kvv.profiles.policy import Policy, PolicyError, parse_waivers
from kvv.rendering.document import markdown
from kvv.reporting.finalize import tell_github
from kvv.reporting.github import summary
from kvv.reporting.text import plain
from kvv.storage.baselines import Baseline, accepted_baselines, newest_first, read_baseline
from kvv.storage.reevaluated import reevaluate
from kvv.storage.run_folder import STORE
from kvv.storage.run_summary import RunSummary
from kvv.storage.run_summary_reader import ANSWER_TEXT, answer_text, open_finished
from kvv.storage.snapshot import expected_text
from kvv.storage.totals import summary_of
from kvv.storage.view import RunView

DEFAULT_POLICY = "nightly"
#: changed cases that are shown with both answers
TOLD = 10
#: a baseline rarely has all suites of a run or the reverse: what is missing is said, and the policy says what is
#: required
ALWAYS_ALLOWED = frozenset({"suites"})


def gate(arguments: argparse.Namespace) -> int:
    """Exit code 0 pass, 1 a gate failed, 3 inconclusive (0 under --on-inconclusive warn), 4 our own error."""
    result = regression_result(arguments)
    code = result.exit_code(inconclusive_fails=arguments.on_inconclusive == "fail")
    shown = document(result)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        # what is meant for a machine or a file keeps standard output to itself
        tell_github(
            workflow_commands(result) if arguments.to or arguments.format == "text" else "", summary(markdown(shown))
        )
    put(arguments, shown, lambda: as_json(result, code=code))
    return code


def regression_result(arguments: argparse.Namespace) -> GateResult:
    """The run against its baselines, with the fresh measurement that ``--confirm-now`` asks for. ConfigError for wrong
    options, a run or baselines that cannot be read or compared, and where no baseline was accepted.
    """
    _check(arguments)
    policy = _policy(arguments.policy or DEFAULT_POLICY, arguments.waivers)
    allowed = allowed_kinds(arguments.allow_different) | ALWAYS_ALLOWED
    side, folder = side_in(arguments.run, arguments.out, "RUN")
    if arguments.confirm_now:
        with open_finished(str(folder), None) as (store, _):
            check_bounds(folder, store, bounds_of(vars(arguments)))
    baselines, doubles = _counted_once(_baselines(arguments, side))
    newest, older = baselines[0].side, _older(baselines, arguments.last)
    older, unused = _like(newest, older, allowed)
    rng = np.random.default_rng(0)
    try:
        found = compare([newest, side], rng, allowed=allowed)
    except UnlikeRuns as error:
        raise ConfigError(f"--baseline: {error}") from error
    held = _Held(policy=policy, accepted=(newest, *older), allowed=allowed, drift_fails=arguments.on_drift == "fail")
    view = _view(folder, policy, held.accepted, side)
    drift = drift_of(side, older, policy, rng)
    second = _second(arguments, held, side, folder, view.decision, drift)
    if second is not None and second.confirmation.side is not None:
        drift = repeated_drift(drift, drift_of(second.confirmation.side, older, policy, rng))
    lines, missing = decide_lines(view.decision, second.decision if second else None, second.trouble if second else "")
    if baselines[0].expired(datetime.now(UTC).date()):
        missing.append(f"the baseline expired on {baselines[0].expires}: accept a newer run")
    deciding = drift_outcomes(drift, wanted=second is not None) if held.drift_fails else []
    broken, mended = contract_changes(found)
    lost, gained = answer_changes(found)
    broken, lost = _with_answers(arguments, newest, folder, broken), _with_answers(arguments, newest, folder, lost)
    gated = [line.gate.id.split("/", 1)[0] for line in lines if line.gate.decision is not Outcome.SKIP]
    return GateResult(
        run=side,
        baseline=newest,
        older=tuple(older),
        policy=policy,
        lines=tuple(lines),
        missing=tuple(missing),
        drift=tuple(drift),
        waivers=view.decision.waivers,
        broken=tuple(broken),
        mended=tuple(mended),
        lost=tuple(lost),
        gained=tuple(gained),
        notes=(
            *_scatter_notes(policy, side, held.accepted),
            *(f"compared although they differ: {u.text}" for u in found.unlike),
            *doubles,
            *found.dropped,
            *unused,
            *filter(None, [view.trouble]),
            *(["nothing alarmed: nothing was measured again"] if arguments.confirm_now and second is None else []),
        ),
        false_alarms=false_alarms(policy, side, gated=gated, drift=drift if held.drift_fails else ()),
        outcome=outcome_of_lines(lines, missing, deciding),
        confirmation=second.confirmation if second else None,
        rules=tuple(line for line in rule_lines([newest, side]) if len(set(line.outcomes)) > 1),
        differences=tuple(pair for suite in found.quality for pair in suite.pairs if pair.measure.primary),
    )


def _older(baselines: Sequence[Baseline], last: int) -> list[RunSummary]:
    """Of ``last`` baselines those older than the newest: the following ones and, however many there are, the first one
    accepted. Measured against recent ones alone a slow drift is never seen whole.
    """
    older = baselines[1:]
    kept = older if len(older) < last else [*older[: max(0, last - 2)], *(older[-1:] if last > 1 else ())]
    return [baseline.side for baseline in kept]


def _with_answers(
    arguments: argparse.Namespace, baseline: RunSummary, folder: Path, rows: Sequence[DiscordantCase]
) -> list[DiscordantCase]:
    """The first rows with both answers; the baseline's where its run still lies here."""
    if not rows:
        return []
    with ExitStack() as stack:
        store, _ = stack.enter_context(open_finished(str(folder), None))
        try:
            other, _ = stack.enter_context(open_finished(baseline.run_id, arguments.out))
        except ConfigError:
            other = None
        told = [
            replace(
                row,
                first_answer=answer_text(other, row.case, row.sample) if other else "",
                second_answer=answer_text(store, row.case, row.sample),
                expected=expected_text(store.case(row.case))[:ANSWER_TEXT],
            )
            for row in rows[:TOLD]
        ]
    return [*told, *rows[TOLD:]]


def _check(arguments: argparse.Namespace) -> None:
    if arguments.last < 1:
        raise ConfigError(f"--last: wants 1 or more, got {arguments.last}")
    if arguments.confirm and arguments.confirm_now:
        raise ConfigError(
            "--confirm-now: makes the second run itself; --confirm names one that was made: give one of them"
        )
    bounds = bounds_of(vars(arguments))
    if bounds and not arguments.confirm_now:
        raise ConfigError(f"--{next(iter(bounds)).replace('_', '-')}: is for --confirm-now, which alone sends anything")


# --- the second measurement --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What a run is held to; of ``accepted`` the newest first."""

    policy: Policy
    accepted: Sequence[RunSummary]
    allowed: Collection[str]
    drift_fails: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Second:
    """``decision`` is None where there is nothing to read a decision from."""

    confirmation: Confirmation
    decision: Decision | None = None

    @property
    def trouble(self) -> str:
        return self.confirmation.trouble


def _second(
    arguments: argparse.Namespace,
    held: _Held,
    side: RunSummary,
    folder: Path,
    decision: Decision,
    drift: Sequence[Drift],
) -> _Second | None:
    """The run of --confirm, or what --confirm-now measures; None where neither was asked for or nothing alarmed."""
    if arguments.confirm:
        named, where = side_in(arguments.confirm, arguments.out, "--confirm")
        if where.resolve() == folder.resolve() or named.same_run(side):
            raise ConfigError("--confirm: is the same run; a confirmation is a fresh measurement")
        if named.model != side.model:
            raise ConfigError(
                f"--confirm: is of the model {plain(named.model, 80)}, the run of {plain(side.model, 80)}"
            )
        if unlike := find_refused(differences([held.accepted[0], named]), held.allowed):
            raise ConfigError(f"--confirm: {unlike[0].text}")
        return _Second(
            confirmation=Confirmation(side=named), decision=_view(where, held.policy, held.accepted, named).decision
        )
    if not arguments.confirm_now:
        return None
    drifted = {d.suite for d in drift if d.shown and held.drift_fails}
    with open_finished(str(folder), None) as (store, _):
        again = what_alarmed(store, side, decision, drifted)
    if not again.suites:
        return None
    fresh = remeasure(folder, again, bounds_of(vars(arguments)))
    if fresh.folder is None:
        return _Second(confirmation=Confirmation(trouble=fresh.trouble))
    measured, where = side_in(str(fresh.folder), None, "--confirm-now")
    if unlike := find_refused(differences([held.accepted[0], measured]), held.allowed):
        return _Second(
            confirmation=Confirmation(
                side=measured, where=str(where), trouble=f"the fresh measurement was made otherwise: {unlike[0].text}"
            )
        )
    view = _view(where, held.policy, held.accepted, measured)
    return _Second(
        confirmation=Confirmation(side=measured, where=str(where), trouble=fresh.trouble), decision=view.decision
    )


def _view(folder: Path, policy: Policy, baselines: Sequence[RunSummary], run: RunSummary) -> RunView:
    """Against the newest baseline; an F1 against all of them, because one run says nothing of how official runs
    scatter.
    """
    references = {}
    for name, suite in run.suites.items():
        if suite.kind is SuiteKind.BENCHMARK and name in baselines[0].suites:
            scatter = any(entry.suite == name and entry.method != "paired" for entry in policy.benchmark)
            references[name] = [
                side.reference(name) for side in (baselines if scatter else baselines[:1]) if name in side.suites
            ]
    return reevaluate(folder / STORE, policy, references)


def _scatter_notes(policy: Policy, run: RunSummary, baselines: Sequence[RunSummary]) -> list[str]:
    """What an F1 gate lacks: nobody can say how an unchanged endpoint scatters from one run of it."""
    return [
        f"{entry.suite}: an F1 is judged by how accepted baselines agree with each other; accept a second one (there is"
        f" {found})"
        for entry in policy.benchmark
        if entry.method == "f1"
        and entry.suite in run.suites
        and (found := sum(entry.suite in side.suites for side in baselines)) < 2
    ]


def _like(
    newest: RunSummary, older: Sequence[RunSummary], allowed: Collection[str]
) -> tuple[list[RunSummary], list[str]]:
    """Older baselines made as the newest one was, and a sentence on each of the others."""
    kept, unused = [], []
    for side in older:
        unlike = find_refused(differences([newest, side]), allowed)
        if unlike:
            unused.append(f"the baseline {side.run_id} is not used: {unlike[0].text}")
        else:
            kept.append(side)
    return kept, unused


def side_in(name: str, out: str | None, option: str) -> tuple[RunSummary, Path]:
    with open_finished(name, out, option) as (store, folder):
        return summary_of(store, folder), folder


def _policy(name: str, waivers: str | None) -> Policy:
    policy = choose_policy(name)
    if not waivers:
        return policy
    try:
        return policy.with_waivers(parse_waivers(Path(waivers).read_text("utf-8"), waivers))
    except PolicyError as error:
        raise ConfigError(f"--waivers: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--waivers: {waivers}: {getattr(error, 'strerror', None) or 'is no UTF-8 text'}") from None


def _baselines(arguments: argparse.Namespace, run: RunSummary) -> list[Baseline]:
    """Those named, or those accepted for this vendor and model; the newest first, never the run itself."""
    if arguments.baseline:
        found = newest_first([_named(name, arguments.out) for name in arguments.baseline])
        if any(baseline.side.same_run(run) for baseline in found):
            raise ConfigError("--baseline: is the run itself")
        return found
    folder = Path(arguments.baselines)
    accepted = list(accepted_baselines(folder, vendor=run.vendor, model=run.model))
    found = [baseline for baseline in accepted if not baseline.side.same_run(run)]
    if accepted and not found:
        raise ConfigError(
            f"--baseline: this run is the only accepted baseline under {folder}/ itself: gate a later run against it"
        )
    if not found:
        what = f"no baseline yet for {plain(run.vendor, 80)} {plain(run.model, 80)} under {folder}/"
        raise ConfigError(
            f"--baseline: {what}: `kvv baseline accept {plain(run.run_id, 120)}` makes this run the first one, or"
            " name one"
        )
    return found


def _counted_once(baselines: Sequence[Baseline]) -> tuple[list[Baseline], list[str]]:
    """Without those that hold a run once more, and a sentence on each: two equal ones would say that a service never
    scatters.
    """
    kept: list[Baseline] = []
    doubles = []
    for baseline in baselines:
        same = next((other for other in kept if baseline.side.same_run(other.side)), None)
        if same is None:
            kept.append(baseline)
        else:
            doubles.append(
                f"the baselines {same.side.run_id} and {baseline.side.run_id} hold the same run; it is counted once"
            )
    return kept, doubles


def _named(name: str, out: str | None) -> Baseline:
    """A baseline file or a run."""
    path = Path(name)
    if path.is_file() and path.suffix == ".json":
        return read_baseline(path)
    return Baseline(side=side_in(name, out, "--baseline")[0])
