"""Several runs of one official endpoint on the same requests: which of them is none of the others' kind, and how often
an endpoint does what an official run did, beside how often another official run does.

A *token* stands for what a run did on a request: 0 for no call, else a number that is equal for equal calls (1 where
only whether it called counts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvv.core.lazy import numpy as np
from kvv.stats.interval import normal_quantile
from kvv.stats.special import chdtrc

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: the chance to leave out one of several runs of an unchanged endpoint, and to call runs of one endpoint unlike
ODD_ALPHA, UNLIKE_ALPHA = 0.002, 0.001
#: as UNLIKE_ALPHA where a run was left out: of runs that drift the last one lies apart from the others, too
DOUBTFUL_ALPHA = 0.01
#: requests known to all runs below which nothing is said of them
LEAST_REQUESTS = 30

Tokens = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class OddRun:
    """A run that differs from the others by more than chance. ``rate`` and ``agreement`` are its share of requests with
    a call and its agreement with the others, ``others_rate`` and ``others_agreement`` those of the others among
    themselves.
    """

    number: int
    rate: float
    others_rate: float
    agreement: float
    others_agreement: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeRuns:
    """``kept`` are numbers of the runs that are of one kind, ``odd`` those left out. ``p``: of equal call rates among
    those kept (Cochran's Q); ``rates`` are theirs."""

    kept: tuple[int, ...]
    odd: tuple[OddRun, ...]
    p: float
    rates: tuple[float, ...]

    @property
    def alike(self) -> bool:
        return self.p >= (DOUBTFUL_ALPHA if self.odd else UNLIKE_ALPHA)


def like_runs(runs: Sequence[Tokens]) -> LikeRuns:
    """Leave out a run whose call rate, or whose agreement with the others, lies apart from theirs by more than chance:
    at most one of three to seven, two of eight, and so on, so that those kept are the majority.

    For each run and request the rate's difference is its own call less the others' share of calls, the agreement's its
    mean agreement with the others less theirs among themselves. Both have mean 0 where all runs are of one endpoint;
    requests are independent, so z is the mean over its standard error. Bonferroni over runs and both measures.
    """
    table, kept, odd = _table(runs), list(range(len(runs))), []
    if table.shape[1] < LEAST_REQUESTS:
        return LikeRuns(kept=tuple(kept), odd=(), p=1.0, rates=tuple(_rates(table)))
    for _ in range(max(1, len(runs) // 4)):
        if len(kept) < 3:
            break
        found = _oddest(table, kept)
        if found is None:
            break
        odd.append(found)
        kept.remove(found.number)
    return LikeRuns(
        kept=tuple(kept), odd=tuple(odd), p=_equal_rates(table[kept] != 0), rates=tuple(_rates(table[kept]))
    )


def _table(runs: Sequence[Tokens]) -> NDArray[np.float64]:
    """Runs by the requests that all of them know."""
    shared = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    return np.array([[run[request] for request in shared] for run in runs], dtype=np.float64).reshape(
        len(runs), len(shared)
    )


def _rates(table: NDArray[np.float64]) -> list[float]:
    return [float(row.mean()) if row.size else 0.0 for row in table != 0]


def _oddest(table: NDArray[np.float64], kept: Sequence[int]) -> OddRun | None:
    bound = normal_quantile(1 - ODD_ALPHA / (2 * len(kept)) / 2)
    found: list[tuple[float, OddRun]] = []
    for number in kept:
        others = [other for other in kept if other != number]
        mine, theirs = table[number], table[others]
        called = (theirs != 0).mean(axis=0)
        with_them = (theirs == mine).mean(axis=0)
        among = np.mean(
            [table[a] == table[b] for i, a in enumerate(others) for b in others[i + 1 :]], axis=0, dtype=np.float64
        )
        z = max(abs(_score((mine != 0) - called)), -_score(with_them - among))
        run = OddRun(
            number=number,
            rate=float((mine != 0).mean()),
            others_rate=float(called.mean()),
            agreement=float(with_them.mean()),
            others_agreement=float(among.mean()),
        )
        found.append((z, run))
    z, run = max(found, key=lambda item: item[0])
    return run if z > bound else None


def _score(differences: NDArray[np.float64]) -> float:
    """The mean over its standard error; 0 without any difference."""
    spread = float(differences.std(ddof=1))
    mean = float(differences.mean())
    return mean / (spread / len(differences) ** 0.5) if spread > 0 else 0.0 if mean == 0 else np.inf * np.sign(mean)


def _equal_rates(called: NDArray[np.bool_]) -> float:
    """p of equal rates of yes in k runs over the same requests: Cochran's Q (Biometrika 37, 1950), and its component
    for a straight line in the order of the runs, which sees a drift sooner; Bonferroni over both.
    """
    k = len(called)
    rows, columns = called.sum(axis=0), called.sum(axis=1)
    spread = float((rows * (k - rows)).sum())
    if k < 2 or not spread:
        return 1.0
    q = k * (k - 1) * float(((columns - columns.mean()) ** 2).sum()) / spread
    if k == 2:
        return float(chdtrc(1, q))
    steps = np.arange(k) - (k - 1) / 2
    line = k * (k - 1) * float((steps * columns).sum()) ** 2 / (spread * float((steps**2).sum()))
    return min(1.0, 2 * float(min(chdtrc(k - 1, q), chdtrc(1, line))))


# --- what official runs did, and another endpoint ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One request: the share of official runs that called, that of pairs of them with the same call, and the share of
    them whose call the endpoint made (``worst`` and ``best`` where its answer is not known)."""

    called: float
    official: float
    worst: float
    best: float


def match_request(official: Sequence[float], mine: float | None) -> Match:
    """At least two official tokens; ``mine`` is None where nothing is known of the answer.

    With c of m official runs making one call, c(c - 1)/(m(m - 1)) of their pairs agree: what an official run that
    stands apart from the one it is compared with reaches, so that no run is compared with itself.
    """
    m = len(official)
    counts = [official.count(token) for token in {token for token in official if token}]
    own = sum(c * (c - 1) for c in counts) / (m * (m - 1))
    if mine is None:
        worst, best = 0.0, max(counts, default=0) / m
    else:
        worst = best = official.count(mine) / m if mine else 0.0
    return Match(called=sum(counts) / m, official=own, worst=worst, best=best)
