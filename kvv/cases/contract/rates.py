"""The verdict of a rate: how often answers pass, against a bound, with an exact interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvv.core import Outcome
from kvv.stats import clopper_pearson, more_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTally:
    """Samples that passed, failed or (None) could not tell, and the bounds ``at-least`` and ``at-most`` of the rate.

    PASS needs the observed rate within the bounds even when what could not tell counts against it. FAIL needs the 95 %
    Clopper-Pearson interval beyond a bound even when what could not tell counts for it. Anything else is INCONCLUSIVE.
    """

    passed: Sequence[bool | None]
    bounds: Mapping[str, float]
    details: Sequence[str] = ()

    @property
    def told(self) -> list[bool]:
        return [one for one in self.passed if one is not None]

    @property
    def values(self) -> Mapping[str, float]:
        told = self.told
        return {"rate": sum(told) / len(told), "samples": float(len(told))} if told else {"samples": 0.0}

    @property
    def facts(self) -> Mapping[str, Any]:
        told = self.told
        interval = list(clopper_pearson(sum(told), len(told)).pair) if told else None
        return {
            "samples": [None if one is None else int(one) for one in self.passed],
            "interval": interval,
            "bounds": dict(self.bounds),
        }

    def verdict(self) -> tuple[Outcome, str, str]:
        n, told = len(self.passed), self.told
        untold, good = n - len(told), sum(told)
        shown = (
            f"{good} of {len(told)} answers"
            + (f", {untold} could not tell" if untold else "")
            + f"; want {self._wanted()}"
        )
        example = f"; {self.details[0]}" if self.details else ""
        low, high = self.bounds.get("at-least", 0.0), self.bounds.get("at-most", 1.0)
        if not told:
            return Outcome.INCONCLUSIVE, "no-sample-told", shown + example
        if good >= low * n and good + untold <= high * n:
            return Outcome.PASS, "", shown
        if clopper_pearson(good + untold, n).high < low:
            return Outcome.FAIL, "rate-too-low", shown + example
        if clopper_pearson(good, n).low > high:
            return Outcome.FAIL, "rate-too-high", shown + example
        return Outcome.INCONCLUSIVE, "rate-unclear", f"{shown}{self._what_would_settle(low, high)}{example}"

    def _what_would_settle(self, low: float, high: float) -> str:
        n, told = len(self.passed), self.told
        rate, interval = sum(told) / len(told), clopper_pearson(sum(told), len(told))
        if low <= rate <= high:
            return f"; answers to the {n - len(told)} that could not tell would settle it"
        reach, bound = (interval.high - rate, low) if rate < low else (rate - interval.low, high)
        more = more_samples(rate, reach, -bound, len(told))
        return "" if more is None else f"; about {more} more samples at this rate would settle it"

    def _wanted(self) -> str:
        return " and ".join(f"{name.replace('-', ' ')} {value:g}" for name, value in self.bounds.items())
