"""A suite's next step, or its verdict on stored replies: in a worker process where the suite wants that, guarded
against what a judge may do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kvv.cases.replay import replay
from kvv.cases.suite import Suite
from kvv.core import Case, Done, Evidence, Outcome, Reply, Step, Verdict
from kvv.execution.workers import WorkerDied, WorkerError, Workers, WorkerTimeout

T = TypeVar("T")


def unjudged_verdict(
    case: Case, outcome: Outcome, reason: str, detail: str, history: Sequence[Reply], scorer: str
) -> Verdict:
    """The verdict of a sample that no judge concluded; it points at the last exchanges before it came to that."""
    exchanges = [answered.exchange.identity.key for reply in history if isinstance(reply, tuple) for answered in reply]
    return Verdict(
        case=case.id,
        sample=case.sample,
        outcome=outcome,
        reason=reason,
        detail=detail[:500],
        evidence=tuple(Evidence(exchange=key) for key in exchanges[-3:]),
        scorer=scorer,
    )


async def next_step(workers: Workers, suite: Suite, case: Case, history: Sequence[Reply]) -> Step:
    """What the suite wants done next. A judge that hangs makes the sample unscorable, one that raises is our error."""
    here = suite.judge_timeout_s is None or not history
    found: Step | Verdict = await _guarded(workers, suite, case, history, "step", suite.step if here else None)
    return Done(verdict=found) if isinstance(found, Verdict) else found


async def judge_replies(workers: Workers, suite: Suite, case: Case, replies: Sequence[Reply]) -> Verdict | None:
    """The verdict that these replies give; None where they do not reach one."""

    def here(case: Case, replies: Sequence[Reply]) -> Verdict | None:
        return replay(suite, case, replies)

    return await _guarded(workers, suite, case, replies, "replay", here if suite.judge_timeout_s is None else None)


async def _guarded(
    workers: Workers,
    suite: Suite,
    case: Case,
    history: Sequence[Reply],
    function: str,
    here: Callable[[Case, Sequence[Reply]], T] | None,
) -> T | Verdict:
    """Calls ``here`` in this process, or without it ``kvv.execution.scheduling.remote``'s function in a worker."""
    try:
        if here is not None:
            return here(case, history)
        found: T = await workers.run(
            f"kvv.execution.scheduling.remote:{function}",
            suite.id,
            case,
            tuple(history),
            timeout_s=suite.judge_timeout_s or 0.0,
            imports=(type(suite).__module__, *suite.judge_imports),
        )
    except (WorkerTimeout, WorkerDied) as error:
        reason = "scorer-timeout" if isinstance(error, WorkerTimeout) else "scorer-died"
        return unjudged_verdict(case, Outcome.INCONCLUSIVE, reason, str(error), history, suite.version)
    except WorkerError as error:
        return unjudged_verdict(case, Outcome.ERROR, "judge-raised", str(error), history, suite.version)
    except Exception as error:  # noqa: BLE001 - the one place where a judge is guarded: our bug must not end the run
        return unjudged_verdict(
            case, Outcome.ERROR, "judge-raised", f"{type(error).__name__}: {error}", history, suite.version
        )
    return found
