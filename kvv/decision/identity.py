"""Is it the same model? One p-value from what an endpoint and two official runs answered to the same prompts.

Each look is a permutation test, so that nothing is assumed of the model: texts sampled at temperature 1, prompt by
prompt (maximum mean discrepancy) and their style over all prompts; how long greedy answers agree; the distributions of
the next token where they are served. The endpoint is held to what official runs show among themselves. A difference is
no harm by itself: it says that the benchmarks should run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

from kvv.core import Outcome
from kvv.core.lazy import numpy as np
from kvv.stats.two_sample import (
    codes,
    hamming_kernel,
    mmd_test,
    odd_one_out,
    repeats_test,
    style_test,
    trigram_features,
)

if TYPE_CHECKING:
    from kvv.stats.two_sample import Floats

#: a difference is said below this p-value: less than one false alarm in 1,000 audits
ALPHA = 0.001
#: where official runs differ from each other below this, they are no measure for anybody
OFFICIAL_ALPHA = 0.01
#: characters of a text that are compared
LENGTH = 80
#: permutations: the smallest p-value that can be shown is one in so many, and one
PERMUTATIONS = 19_999

#: the next token's probabilities at the places of a greedy answer: token -> probability
Distributions = Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptData:
    """What was answered to one prompt. ``references``: the texts of the official runs, two or one; ``greedy`` and
    ``distributions``: of the first official run, the second and the endpoint, None where one of them is missing.
    """

    references: tuple[tuple[str, ...], ...]
    texts: tuple[str, ...]
    greedy: tuple[str, ...] | None = None
    distributions: tuple[Distributions, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityData:
    prompts: tuple[PromptData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One way of looking. ``theirs`` is how alike official runs are, ``ours`` how alike the endpoint is to them, both
    in ``unit``.
    """

    name: str
    p: float
    theirs: float
    ours: float
    unit: str
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityResult:
    """``p`` is over all looks (Bonferroni). ``official_p``: how surprising it is that official runs differ so much from
    each other, None with one run. ``repeats_p`` of answers that are repeated more often than official ones.
    """

    outcome: Outcome
    p: float
    looks: tuple[Look, ...]
    official_p: float | None
    repeats_p: float
    repeated: tuple[str, ...]
    sentence: str


def judge(data: IdentityData, generator: np.random.Generator) -> IdentityResult:
    """ValueError where there is no prompt with answers of both sides."""
    asked = [one for one in data.prompts if one.texts and sum(map(len, one.references)) > 0]
    if not asked:
        raise ValueError("no prompt was answered by both sides")
    two = all(len(one.references) > 1 and all(one.references) for one in asked)
    looks = [_sampled(asked, generator), _style(asked, generator)]
    looks += [look for look in (_greedy(asked, generator), _next_token(asked, generator)) if look is not None]
    p = min(1.0, len(looks) * min(look.p for look in looks))
    official_p = _official(asked, generator) if two else None
    repeats = repeats_test(
        [[*one.texts, *_pooled(one)] for one in asked], [len(one.texts) for one in asked], generator, PERMUTATIONS
    )
    if p >= ALPHA:
        outcome = Outcome.PASS
    else:
        outcome = Outcome.FAIL if official_p is not None and official_p >= OFFICIAL_ALPHA else Outcome.INCONCLUSIVE
    return IdentityResult(
        outcome=outcome,
        p=p,
        looks=tuple(looks),
        official_p=official_p,
        repeats_p=repeats.p,
        repeated=tuple(_most_repeated(asked)) if repeats.p < ALPHA else (),
        sentence=_sentence(outcome, p, official_p),
    )


def forms_p(forms: Sequence[tuple[Sequence[str], Sequence[str]]], generator: np.random.Generator) -> float | None:
    """How surprising it is that answers to requests of two forms differ so much; None where one was not answered."""
    both = [pair for pair in forms if pair[0] and pair[1]]
    if not both:
        return None
    kernels = _kernels([[*first, *second] for first, second in both])
    return mmd_test(kernels, [len(first) for first, _ in both], generator, PERMUTATIONS).p


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePairs:
    """Small tasks as harnesses put them and rewritten, of those of which both were answered. ``p``: the chance that so
    many of the unlike pairs favour the recognisable form (sign test, one-sided).
    """

    recognisable: int
    rewritten: int
    n: int
    p: float


def probe_pairs(pairs: Sequence[Sequence[bool | None]]) -> ProbePairs:
    both = [(first, second) for first, second in pairs if first is not None and second is not None]
    better = sum(first and not second for first, second in both)
    worse = sum(second and not first for first, second in both)
    unlike = better + worse
    p = sum(comb(unlike, k) for k in range(better, unlike + 1)) / 2**unlike
    return ProbePairs(
        recognisable=sum(bool(first) for first, _ in both),
        rewritten=sum(bool(second) for _, second in both),
        n=len(both),
        p=p,
    )


def _sentence(outcome: Outcome, p: float, official_p: float | None) -> str:
    match outcome:
        case Outcome.PASS:
            return f"no difference from the official model is shown (p {p:.2g})"
        case Outcome.FAIL:
            return f"differs more than official from itself (p {p:.2g})"
    if official_p is None:
        return f"differs from the one official run (p {p:.2g}); a second must show how far official differs from itself"
    return f"differs (p {p:.2g}), but the official runs differ from each other too (p {official_p:.2g})"


def _pooled(one: PromptData) -> list[str]:
    return [text for run in one.references for text in run]


def _kernels(prompts: Sequence[Sequence[str]]) -> list[Floats]:
    return [hamming_kernel(codes(texts, LENGTH)) for texts in prompts]


def _sampled(asked: Sequence[PromptData], generator: np.random.Generator) -> Look:
    kernels = _kernels([[*one.texts, *_pooled(one)] for one in asked])
    counts = [len(one.texts) for one in asked]
    found = mmd_test(kernels, counts, generator, PERMUTATIONS)
    ours = np.mean([kernel[:k, k:].mean() for kernel, k in zip(kernels, counts, strict=True)])
    theirs = np.mean([_off_diagonal(kernel[k:, k:]) for kernel, k in zip(kernels, counts, strict=True)])
    return Look(
        name="texts at temperature 1", p=found.p, theirs=float(theirs), ours=float(ours), unit="likeness", n=sum(counts)
    )


def _style(asked: Sequence[PromptData], generator: np.random.Generator) -> Look:
    counts = [len(one.texts) for one in asked]
    features = [trigram_features([*one.texts, *_pooled(one)]) for one in asked]
    found = style_test(features, counts, generator, PERMUTATIONS)
    halves = [(each[k:], len(one.references[0])) for each, k, one in zip(features, counts, asked, strict=True)]
    theirs = [half[:k].mean(axis=0) - half[k:].mean(axis=0) for half, k in halves if 0 < k < len(half)]
    return Look(
        name="style over all prompts",
        p=found.p,
        theirs=float(np.linalg.norm(np.mean(theirs, axis=0))) if theirs else 0.0,
        ours=found.statistic**0.5,
        unit="distance of mean texts",
        n=sum(counts),
    )


def _off_diagonal(kernel: Floats) -> float:
    n = len(kernel)
    return float((kernel.sum() - np.trace(kernel)) / (n * (n - 1))) if n > 1 else 1.0


def _official(asked: Sequence[PromptData], generator: np.random.Generator) -> float:
    kernels = _kernels([_pooled(one) for one in asked])
    return mmd_test(kernels, [len(one.references[0]) for one in asked], generator, PERMUTATIONS).p


def _greedy(asked: Sequence[PromptData], generator: np.random.Generator) -> Look | None:
    rows = []
    for one in asked:
        if one.greedy is not None:
            first, second, ours = one.greedy
            rows.append([_agreement(ours, first), _agreement(ours, second), _agreement(first, second)])
    if not rows:
        return None
    # long agreements say little more than middling ones: a difference early in a text is what counts
    lengths = np.log1p(np.array(rows, dtype=np.float64))
    found = odd_one_out(-lengths, generator, PERMUTATIONS)
    medians = np.median(np.array(rows), axis=0)
    return Look(
        name="greedy answers",
        p=found.p,
        theirs=float(medians[2]),
        ours=float(medians[:2].mean()),
        unit="characters in common, median",
        n=len(rows),
    )


def _agreement(one: str, other: str) -> int:
    """Characters that two texts have in common from their beginning."""
    both = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(both) if a != b), min(len(one), len(other)))


def _next_token(asked: Sequence[PromptData], generator: np.random.Generator) -> Look | None:
    rows = []
    for one in asked:
        if one.distributions is not None and (found := _variations(one.distributions)) is not None:
            rows.append(found)
    if not rows:
        return None
    distances = np.array(rows)
    test = odd_one_out(distances, generator, PERMUTATIONS)
    means = distances.mean(axis=0)
    return Look(
        name="distributions of the next token",
        p=test.p,
        theirs=float(means[2]),
        ours=float(means[:2].mean()),
        unit="total variation",
        n=len(rows),
    )


def _variations(runs: Sequence[Distributions]) -> list[float] | None:
    """Mean total variation between the three, over the places that all three reached by the same tokens (teacher-forced
    by agreement).
    """
    first, second, ours = runs
    pairs: list[list[float]] = []
    for a, b, c in zip(first, second, ours, strict=False):
        if not (a and b and c):
            break
        pairs.append([_variation(c, a), _variation(c, b), _variation(a, b)])
        if len({max(one, key=lambda token: one[token]) for one in (a, b, c)}) > 1:
            break  # from here on the texts differ
    return [float(value) for value in np.mean(pairs, axis=0)] if pairs else None


def _variation(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return 0.5 * sum(abs(one.get(token, 0.0) - other.get(token, 0.0)) for token in {*one, *other})


def _most_repeated(asked: Sequence[PromptData]) -> list[str]:
    """Texts that came again, those that came most often first."""
    counts = [(one.texts.count(text), text) for one in asked for text in dict.fromkeys(one.texts)]
    return [text for count, text in sorted(counts, reverse=True) if count > 1][:5]
