"""A suite's next step, in a worker process where the suite wants that, and the verdicts of samples that no judge concluded."""

from __future__ import annotations

from collections.abc import Sequence

from kvv.model import Case, Done, Evidence, Outcome, Reply, Step, Verdict
from kvv.suite import Suite
from kvv.workers import WorkerDied, WorkerError, Workers, WorkerTimeout


def unjudged(case: Case, outcome: Outcome, reason: str, detail: str, history: Sequence[Reply], scorer: str) -> Verdict:
    """Points at the last exchanges before it came to that."""
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


async def next_step(workers: Workers, suite: Suite, case: Case, history: list[Reply]) -> Step:
    """A judge that hangs makes the sample unscorable, one that raises is our error."""
    try:
        if suite.judge_timeout_s is None or not history:
            return suite.step(case, history)
        step: Step = await workers.run(
            "kvv.schedule.remote:step",
            suite.id,
            case,
            tuple(history),
            timeout_s=suite.judge_timeout_s,
            imports=(type(suite).__module__, *suite.judge_imports),
        )
    except (WorkerTimeout, WorkerDied) as error:
        reason = "scorer-timeout" if isinstance(error, WorkerTimeout) else "scorer-died"
        return Done(verdict=unjudged(case, Outcome.INCONCLUSIVE, reason, str(error), history, suite.version))
    except WorkerError as error:
        return Done(verdict=unjudged(case, Outcome.ERROR, "judge-raised", str(error), history, suite.version))
    except Exception as error:  # noqa: BLE001 - the one place where a judge is guarded: our bug must not end the run
        return Done(verdict=unjudged(case, Outcome.ERROR, "judge-raised", f"{type(error).__name__}: {error}", history, suite.version))
    return step
