"""Service levels: shares of requests that keep a limit, judged with exact one-sided limits."""

from __future__ import annotations

from dataclasses import dataclass

from kvv.core import Area, Gate, Level, Outcome
from kvv.profiles.policy import LatencyMeasure, Policy, ServiceLevel
from kvv.stats.interval import exact_lower, exact_upper
from kvv.stats.power import more_samples

#: how the gates' ids begin
SERVICE = "service/"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedAnswer:
    """One answered exchange: milliseconds and tokens/s, None where not measured; ``workload`` chat or agentic.

    ``right``: whether it gave the known answer; ``clean``: whether no wire rule of level must objected.
    """

    prompt_tokens: int
    workload: str = "chat"
    ttft_ms: float | None = None
    itl_ms: float | None = None
    output_tps: float | None = None
    e2e_ms: float | None = None
    right: bool | None = None
    clean: bool | None = None

    def value(self, measure: LatencyMeasure) -> float | None:
        match measure:
            case LatencyMeasure.TTFT_MS:
                return self.ttft_ms
            case LatencyMeasure.ITL_MS:
                return self.itl_ms
            case LatencyMeasure.OUTPUT_TPS:
                return self.output_tps
            case LatencyMeasure.E2E_MS:
                return self.e2e_ms
            case LatencyMeasure.ANSWERED:
                return 1.0
            case LatencyMeasure.RIGHT:
                return None if self.right is None else float(self.right)
            case LatencyMeasure.CLEAN:
                return None if self.clean is None else float(self.clean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A request that got no whole answer. ``prompt_tokens`` is None where nobody counted them.

    ``unexplained``: the network or the account may have been the cause, so that nothing is known of the service.
    """

    prompt_tokens: int | None
    workload: str = "chat"
    streamed: bool = True
    unexplained: bool = False


def _of(level: ServiceLevel) -> str:
    """Of which requests, "" for all."""
    least, most = level.min_prompt_tokens, level.max_prompt_tokens
    prompts = (
        f"prompts of {least:,} to {most:,} tokens" if most else f"prompts of {least:,} tokens and more" if least else ""
    )
    whose = " ".join(filter(None, [level.workload, "requests"])) + (f" with {prompts}" if prompts else "")
    return f" of {whose}" if level.workload or prompts else ""


@dataclass(slots=True)
class _Count:
    """``missed`` are answers beyond the limit, ``lost`` requests without an answer, ``open`` those that may be either
    or none of the service's.
    """

    kept: int = 0
    missed: int = 0
    lost: int = 0
    open: int = 0


class LatencyTally:
    """Counts, per service level, the requests that keep it. Feed it each request once, by its first attempt: what a
    user would have had.

    A request that hung, broke off or was refused is a miss of every level that its answer would have been measured for.
    One that is lost for a reason that need not be the service's, or whose length nobody knows where a level is of some
    lengths, is open: a PASS needs it as a miss, a FAIL as kept.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._counts = {level.id: _Count() for level in policy.service_level}

    def add(self, answer: TimedAnswer) -> None:
        for level in self._policy.service_level:
            value = answer.value(level.measure)
            if value is not None and level.covers(answer.prompt_tokens, answer.workload):
                count = self._counts[level.id]
                if level.keeps(value):
                    count.kept += 1
                else:
                    count.missed += 1

    def lose(self, request: Lost) -> None:
        for level in self._policy.service_level:
            measured = level.measure not in (LatencyMeasure.RIGHT, LatencyMeasure.CLEAN) and (
                request.streamed or level.measure in (LatencyMeasure.E2E_MS, LatencyMeasure.ANSWERED)
            )
            length = level.min_prompt_tokens if request.prompt_tokens is None else request.prompt_tokens
            if measured and level.covers(length, request.workload):
                count = self._counts[level.id]
                if request.unexplained or (request.prompt_tokens is None and not level.any_length):
                    count.open += 1
                else:
                    count.lost += 1

    def keeps_all(self, answer: TimedAnswer) -> bool:
        """Whether an answer keeps every level that it is measured by."""
        return all(
            level.keeps(value)
            for level in self._policy.service_level
            if level.covers(answer.prompt_tokens, answer.workload)
            and (value := answer.value(level.measure)) is not None
        )

    def gates(self) -> list[Gate]:
        return [self._gate(level, self._counts[level.id]) for level in self._policy.service_level]

    def _gate(self, level: ServiceLevel, count: _Count) -> Gate:
        alpha = self._policy.alpha
        sign = "at least" if level.measure.is_floor else "at most"
        wanted = f"{level.measure.value} {sign} {level.limit:g} for {100 * level.share:g} %{_of(level)}"
        n = count.kept + count.missed + count.lost + count.open
        if not n:
            decision, reason = Outcome.INCONCLUSIVE, f"nothing-measured: no request falls under it ({wanted})"
        else:
            low, high = exact_lower(count.kept, n, 1 - alpha), exact_upper(count.kept + count.open, n, 1 - alpha)
            decision = (
                Outcome.PASS if low >= level.share else Outcome.FAIL if high < level.share else Outcome.INCONCLUSIVE
            )
            code = {Outcome.PASS: "kept", Outcome.FAIL: "missed"}.get(decision, "cannot-tell")
            confidence = 100 * (1 - 2 * alpha)
            reason = (
                f"{code}: {count.kept} of {n} requests ({confidence:g} % interval {100 * low:.1f} to {100 * high:.1f}"
                f" %) kept {wanted}"
            )
            reason += f"; {count.lost} got no whole answer" if count.lost else ""
            reason += (
                f"; {count.open} are open (the network, the account, or an unknown prompt length)" if count.open else ""
            )
            if decision is Outcome.INCONCLUSIVE and not count.open:
                reason += f"; {_what_would_settle(count.kept / n, low, high, level.share, n)}"
        return Gate(
            id=f"service/{level.id}",
            area=Area.LATENCY,
            level=Level.MUST,
            decision=decision,
            reason=reason,
            method="share, one-sided Clopper-Pearson",
        )


def _what_would_settle(rate: float, low: float, high: float, share: float, n: int) -> str:
    more = more_samples(rate, high - rate if rate < share else rate - low, -share, n)
    return (
        "the share stands on the limit, no number of requests would settle it"
        if more is None
        else f"about {more} more requests would settle it"
    )
