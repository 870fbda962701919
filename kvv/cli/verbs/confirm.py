"""One fresh measurement of what alarmed: the same endpoint, the run's own settings, the alarmed suites and cases alone,
inside given bounds.

It is an ordinary run folder, kept under the run that it confirms (``RUN/confirming/``): evidence of that alarm, and no
night of its own to histories, leaderboards and ``last``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from kvv.cases.suite import SuiteKind
from kvv.core import Area, Level, Outcome
from kvv.decision import Decision
from kvv.planning.config import ConfigError, RunConfig, revise
from kvv.storage.run_folder import STORE, read_config, runs_under
from kvv.storage.run_summary import RunSummary
from kvv.storage.run_summary_reader import open_finished
from kvv.storage.seal import SEALED, trusted_config
from kvv.storage.store import Store, StoreError
from kvv.storage.view import RunView

FOLDER = "confirming"
#: what names a reference: what the confirmation is judged against is the gate's
NOT_ASKED = frozenset(name for name in RunConfig.model_fields if name.startswith("reference")) | {"as_reference"}
#: further options of a run that its confirmation does not have
NOT_AGAIN = frozenset({"shard", "policy", "early_stop", "strict", "json_output", "quiet"})
#: options of the gate that bound the fresh measurement; those not given are the run's own
RUN_BOUNDS = ("deadline", "max_cost", "max_requests", "max_tokens_total")
BOUNDS = (
    *RUN_BOUNDS,
    "yes",
    *(name for name in SEALED if name not in NOT_ASKED | NOT_AGAIN),
)
#: failing cases of one contract suite beyond which the whole suite is asked, and exchanges looked at for one rule
CASES, EXCHANGES = 20, 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What is asked again: suites, and of contract suites the cases by id (a glob for a whole suite). ``cases`` is
    empty where all are whole.
    """

    suites: tuple[str, ...]
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """``folder`` is None where nothing could be asked; ``trouble`` says what kept the measurement from being made or
    finished.
    """

    folder: Path | None
    trouble: str = ""


def what_alarmed(store: Store, side: RunSummary, decision: Decision, drifted: Collection[str]) -> Again:
    """Of the gates that fail, and of suites whose drift fails the night.

    A benchmark is asked whole; of a contract area the cases that failed and those on which a rule of it was broken; for
    a service level and for failures by feature every suite of the run, as they are counted over all of them.
    """
    wanted: dict[str, set[str]] = {name: set() for name in drifted}
    for gate in decision.gates:
        if gate.decision is not Outcome.FAIL:
            continue
        kind = gate.id.split("/", 1)[0]
        if kind == "contract":
            for case in [*_failed(side, gate.area), *_broken(store, decision, gate.area)]:
                wanted.setdefault(case.split("/", 1)[0], set()).add(case)
        elif kind in ("service", "failures"):
            wanted |= {suite: set() for suite in side.suites}
        elif kind in side.suites:
            wanted[kind] = set()
    return _again(side, wanted)


def _again(side: RunSummary, wanted: Mapping[str, set[str]]) -> Again:
    whole = {
        name
        for name, cases in wanted.items()
        if name in side.suites and (not cases or len(cases) > CASES or side.suites[name].kind is SuiteKind.BENCHMARK)
    }
    suites = tuple(name for name in side.suites if name in wanted)
    if whole >= set(suites):
        return Again(suites=suites, cases=())
    return Again(
        suites=suites,
        cases=tuple(glob for name in suites for glob in ([f"{name}/*"] if name in whole else sorted(wanted[name]))),
    )


def _failed(side: RunSummary, area: Area) -> list[str]:
    contract = (suite for suite in side.suites.values() if suite.kind is not SuiteKind.BENCHMARK)
    return [
        name
        for suite in contract
        for name, case in suite.cases.items()
        if case.area is area and any(s.outcome is Outcome.FAIL for s in case.samples)
    ]


def _broken(store: Store, decision: Decision, area: Area) -> list[str]:
    """Cases on which a rule of this area was broken: contract cases where there are any, else those of benchmarks."""
    mine = [finding for finding in decision.findings if finding.area is area]
    must = [finding for finding in mine if finding.level is Level.MUST]
    rules = {finding.rule for finding in must or mine}
    seen = [
        one.exchange.identity.case for rule in sorted(rules) for one in islice(store.exchanges(rule=rule), EXCHANGES)
    ]
    cases = list(dict.fromkeys(seen))
    kinds = {entry["id"]: SuiteKind(entry["kind"]) for entry in store.meta()["suites"]}
    contract = [case for case in cases if kinds.get(case.split("/", 1)[0]) not in (None, SuiteKind.BENCHMARK)]
    return contract or cases


def bounds_of(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in BOUNDS if given.get(name) is not None}


def config_again(folder: Path, again: Again, bounds: Mapping[str, Any]) -> RunConfig:
    """The run's own configuration, cut down to what alarmed. ConfigError for a run that nobody can ask again, and for
    wrong bounds.
    """
    fresh: dict[str, Any] = {
        name: field.default for name, field in RunConfig.model_fields.items() if name in NOT_AGAIN | NOT_ASKED
    }
    config = trusted_config(folder, bounds, unused=fresh)
    if (folder / FOLDER).is_symlink():
        raise ConfigError(f"--confirm-now: {folder / FOLDER} is a link; put the folder itself there")
    # the gate of parameters, where it alarmed, must not keep the alarmed benchmarks from being measured
    fresh |= {"suites": again.suites, "case": again.cases, "force": True, "out": str(folder / FOLDER)}
    return revise(config.model_copy(update=fresh), dict(bounds))


def check_bounds(folder: Path, store: Store, bounds: Mapping[str, Any]) -> None:
    """Before anything is decided: wrong bounds, and recorded results, which nobody can measure again."""
    if store.meta().get("imported"):
        raise ConfigError("--confirm-now: these are recorded results: there is no endpoint to ask again")
    config_again(folder, Again(suites=(), cases=()), bounds)


def remeasure(folder: Path, again: Again, bounds: Mapping[str, Any]) -> Fresh:
    """Asks again, once: a finished measurement of the same is taken as it is. Blocks until done; raises
    KeyboardInterrupt where interrupted.
    """
    config = config_again(folder, again, bounds)
    earlier = _made_before(folder, config)
    if earlier is not None:
        return Fresh(folder=earlier)
    from kvv.cli.verbs.session import start

    made: list[Path] = []

    def tell(told: RunConfig, view: RunView, where: Path) -> None:
        made.append(where)

    try:
        start(config, contract_only=False, tell=tell)
    except ConfigError as error:
        return Fresh(folder=None, trouble=f"the fresh measurement was not made: {error}")
    stop = _stop(made[0])
    if stop.get("reason") == "interrupted":
        raise KeyboardInterrupt("interrupted; the alarm is not confirmed")
    return Fresh(
        folder=made[0],
        trouble=f"the fresh measurement ended first ({stop['reason']}): {stop['sentence']}" if stop else "",
    )


def _stop(folder: Path) -> dict[str, str]:
    with open_finished(str(folder), None, "--confirm-now") as (store, _):
        return dict(store.meta().get("stop") or {})


def _made_before(folder: Path, config: RunConfig) -> Path | None:
    """The newest measurement of the same that came to its end."""
    for earlier in reversed(runs_under(folder / FOLDER)):
        try:
            known = read_config(earlier)
            if (set(known.suites), set(known.case), known.base_url) != (
                set(config.suites),
                set(config.case),
                config.base_url,
            ):
                continue
            with Store.open(earlier / STORE, read_only=True) as store:
                meta = store.meta()
        except (ConfigError, StoreError):
            continue
        if meta.get("finished") and not meta.get("stop"):
            return earlier
    return None
