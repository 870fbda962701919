"""Service levels: shares of answers that keep a limit, judged with exact one-sided limits."""

from __future__ import annotations

from dataclasses import dataclass

from kvv.model import Area, Gate, Level, Outcome
from kvv.policy import Measure, Policy, ServiceLevel
from kvv.stats.interval import exact_lower, exact_upper
from kvv.stats.power import more_samples

#: how the gates' ids begin
SERVICE = "service/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answered exchange: milliseconds and tokens/s, None where not measured; ``workload`` chat or agentic."""

    prompt_tokens: int
    workload: str = "chat"
    ttft_ms: float | None = None
    itl_ms: float | None = None
    output_tps: float | None = None
    e2e_ms: float | None = None

    def value(self, measure: Measure) -> float | None:
        match measure:
            case Measure.TTFT_MS:
                return self.ttft_ms
            case Measure.ITL_MS:
                return self.itl_ms
            case Measure.OUTPUT_TPS:
                return self.output_tps
            case Measure.E2E_MS:
                return self.e2e_ms


def _of(level: ServiceLevel) -> str:
    """Of which answers, "" for all."""
    least, most = level.min_prompt_tokens, level.max_prompt_tokens
    prompts = f"prompts of {least:,} to {most:,} tokens" if most else f"prompts of {least:,} tokens and more" if least else ""
    whose = " ".join(filter(None, [level.workload, "answers"])) + (f" with {prompts}" if prompts else "")
    return f" of {whose}" if level.workload or prompts else ""


class LatencyTally:
    """Counts, per service level, the answers that keep it. Feed it each answered exchange once."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._counts = {level.id: [0, 0] for level in policy.service_level}

    def add(self, answer: Answer) -> None:
        for level in self._policy.service_level:
            value = answer.value(level.measure)
            if value is not None and level.covers(answer.prompt_tokens, answer.workload):
                count = self._counts[level.id]
                count[0] += level.keeps(value)
                count[1] += 1

    def gates(self) -> list[Gate]:
        return [self._gate(level, *self._counts[level.id]) for level in self._policy.service_level]

    def _gate(self, level: ServiceLevel, kept: int, n: int) -> Gate:
        alpha = self._policy.alpha
        sign = "at least" if level.measure is Measure.OUTPUT_TPS else "at most"
        wanted = f"{level.measure.value} {sign} {level.limit:g} for {100 * level.share:g} %{_of(level)}"
        if not n:
            decision, reason = Outcome.INCONCLUSIVE, f"nothing-measured: no answer falls under it ({wanted})"
        else:
            low, high = exact_lower(kept, n, 1 - alpha), exact_upper(kept, n, 1 - alpha)
            decision = Outcome.PASS if low >= level.share else Outcome.FAIL if high < level.share else Outcome.INCONCLUSIVE
            code = {Outcome.PASS: "kept", Outcome.FAIL: "missed"}.get(decision, "cannot-tell")
            confidence = 100 * (1 - 2 * alpha)
            reason = f"{code}: {kept} of {n} answers ({confidence:g} % interval {100 * low:.1f} to {100 * high:.1f} %) kept {wanted}"
            if decision is Outcome.INCONCLUSIVE:
                reason += f"; {_what_would_settle(kept / n, low, high, level.share, n)}"
        return Gate(
            id=f"service/{level.id}", area=Area.LATENCY, level=Level.MUST, decision=decision, reason=reason, method="share, one-sided Clopper-Pearson"
        )


def _what_would_settle(rate: float, low: float, high: float, share: float, n: int) -> str:
    more = more_samples(rate, high - rate if rate < share else rate - low, -share, n)
    return "the share stands on the limit, no number of answers would settle it" if more is None else f"about {more} more answers would settle it"
