"""F1 of a binary decision (does the model call a tool?) against runs of the official endpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvv.core.lazy import numpy as np
from kvv.stats.interval import Interval, normal_quantile, wilson

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Counts; positive means that the reference called a tool."""

    tp: int = 0
    fp: int = 0
    fn: int = 0
    tn: int = 0

    @property
    def n(self) -> int:
        return self.tp + self.fp + self.fn + self.tn

    @property
    def f1(self) -> float | None:
        """2TP/(2TP+FP+FN); None where neither side ever called."""
        denominator = 2 * self.tp + self.fp + self.fn
        return 2 * self.tp / denominator if denominator else None

    def plus(self, *, tp: int = 0, fp: int = 0, fn: int = 0, tn: int = 0) -> Confusion:
        return Confusion(tp=self.tp + tp, fp=self.fp + fp, fn=self.fn + fn, tn=self.tn + tn)

    def add(self, *, reference: bool, vendor: bool) -> Confusion:
        """With one more sample."""
        return self.plus(
            tp=reference and vendor,
            fp=vendor and not reference,
            fn=reference and not vendor,
            tn=not (reference or vendor),
        )

    def f1_interval(self, confidence: float = 0.95) -> Interval | None:
        """Given TP+FP+FN, TP/(TP+FP+FN) is one binomial share F*, and F1 = 2F*/(1+F*) rises with it: Wilson's interval,
        carried over.
        """
        n = self.tp + self.fp + self.fn
        if not n:
            return None
        share = wilson(self.tp, n, confidence)
        return Interval(low=2 * share.low / (1 + share.low), high=2 * share.high / (1 + share.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class NullF1:
    """How F1 scatters when both sides are the official endpoint. ``values`` is sorted."""

    values: NDArray[np.float64]
    runs: int
    pairs: int

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.values, share))

    def position(self, f1: float) -> float:
        """The share of official-against-official draws at or below ``f1``: where a vendor falls in the distribution."""
        return float(np.searchsorted(self.values, f1, side="right")) / len(self.values)

    @property
    def spread(self) -> float:
        """A standard deviation, read from the lower tail: from the median to the 1 % quantile."""
        return (self.quantile(0.5) - self.quantile(0.01)) / normal_quantile(0.99)


def lost_calls(f1: float, lowered: float) -> float:
    """The share of its calls that an endpoint has to leave out to fall from ``f1`` to ``lowered``.

    Leaving out x of all calls turns TP into (1-x)TP, with x TP more FN, and FP into (1-x)FP. With FP = FN, as between
    runs of one endpoint, F1 becomes 2 f1 (1-x)/(2-x).
    """
    if f1 <= 0:
        return 1.0
    return min(1.0, max(0.0, 2 * (f1 - lowered) / (2 * f1 - lowered)))


def official_null(runs: Sequence[Mapping[str, bool]], rng: np.random.Generator, draws: int = 10_000) -> NullF1 | None:
    """The official-against-official distribution of F1 over all pairs of runs, bootstrapped by prompt.

    Each run maps a prompt to whether it called a tool; a pair is compared on the prompts both have. None with fewer
    than two runs, or where no pair ever called. Resampling a pair's prompts with replacement is a multinomial draw of
    its three kinds of prompt, of which F1 is a function, so that it is drawn directly. Half a disagreement is added
    (Jeffreys' prior): two runs that agree on all of five prompts are no proof that the official endpoint never wavers.
    """
    pairs = [_pair(a, b) for i, a in enumerate(runs) for b in runs[i + 1 :]]
    pairs = [pair for pair in pairs if pair.f1 is not None]
    if not pairs:
        return None
    per_pair = max(1, draws // len(pairs))
    values = []
    for pair in pairs:
        shares = np.array([pair.tp, pair.fp + pair.fn + 0.5, pair.tn], dtype=np.float64) / (pair.n + 0.5)
        counts = rng.multinomial(pair.n, shares, size=per_pair)
        denominator = 2 * counts[:, 0] + counts[:, 1]
        values.append((2 * counts[:, 0] / np.maximum(denominator, 1))[denominator > 0])
    return NullF1(values=np.sort(np.concatenate(values)), runs=len(runs), pairs=len(pairs))


def _pair(a: Mapping[str, bool], b: Mapping[str, bool]) -> Confusion:
    counts = Counter((a[prompt], b[prompt]) for prompt in a.keys() & b.keys())
    return Confusion(tp=counts[True, True], fp=counts[False, True], fn=counts[True, False], tn=counts[False, False])


def mean_f1(vendor: Mapping[str, bool], runs: Sequence[Mapping[str, bool]]) -> float | None:
    """The vendor's F1 averaged over the official runs; None where it is undefined against every one."""
    values = [f1 for run in runs if (f1 := _pair(run, vendor).f1) is not None]
    return sum(values) / len(values) if values else None
