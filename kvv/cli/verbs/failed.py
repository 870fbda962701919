"""Which cases of a run failed, by themselves or by a wire rule."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from kvv.cli.verbs.opening import open_run
from kvv.core import Level, Outcome
from kvv.planning.config import ConfigError

#: exchanges looked at for one rule: enough to see it again
EXCHANGES = 50


def failed_cases(folder: Path) -> list[str]:
    """Ids in the order of the plan; of a broken must rule the first cases whose answers it objected to. ConfigError
    where nothing failed.
    """
    with open_run(str(folder), None) as (store, _):
        failed = [case for case, _, verdict in store.verdicts() if verdict.outcome is Outcome.FAIL]
        planned = {case.id for case, _ in store.cases()}
        for group in store.finding_groups():
            if group.level is Level.MUST:
                found = islice(store.exchanges(rule=group.rule), EXCHANGES)
                failed += [stored.exchange.identity.case for stored in found]
    cases = [case for case in dict.fromkeys(failed) if case in planned]
    if not cases:
        raise ConfigError(f"--last-failed: nothing failed in {folder}; run without it to ask everything")
    return cases
