"""Do two sets of texts come from one distribution? Maximum mean discrepancy with a string kernel, by permutation.

After Gao, Liang and Guestrin (Model Equality Testing: Which Model Is This API Serving?, ICLR 2025). Samples are texts
to the same prompts; labels are permuted within each prompt, so that the p-value is exact whatever the prompts are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: permutations are drawn in parts of this size, and no more once this many statistics were as large: the p-value is
#: large then (Besag and Clifford, Sequential Monte Carlo p-values, Biometrika 1991)
PART, ENOUGH = 250, 25
#: columns that three characters are hashed to
FEATURES = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationTest:
    """``p`` is at least 1/(permutations + 1); ``statistic`` is the observed one, in its own unit."""

    statistic: float
    p: float
    permutations: int


def codes(texts: Sequence[str], length: int) -> NDArray[np.int32]:
    """The first ``length`` characters of each text as code points, -1 after its end: shape (texts, length)."""
    found = np.full((len(texts), length), -1, dtype=np.int32)
    for row, text in zip(found, texts, strict=True):
        points = [ord(ch) for ch in text[:length]]
        row[: len(points)] = points
    return found


def hamming_kernel(rows: NDArray[np.int32]) -> Floats:
    """The share of places at which two rows agree: (n, n), 1 on the diagonal."""
    return np.asarray((rows[:, None, :] == rows[None, :, :]).mean(axis=2), dtype=np.float64)


def trigram_features(texts: Sequence[str], width: int = FEATURES) -> Floats:
    """How often each three characters follow each other, hashed to ``width`` columns, square roots, norm 1: (n, width).

    Their inner product is a spectrum kernel (Leslie, Eskin and Noble, 2002).
    """
    found = np.zeros((len(texts), width))
    for row, text in zip(found, texts, strict=True):
        grams = [text[i : i + 3].encode("utf-8", "surrogatepass") for i in range(max(1, len(text) - 2))]
        np.add.at(row, [crc32(gram) % width for gram in grams], 1.0)
    found = np.sqrt(found)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), dtype=np.float64)


def style_test(
    features: Sequence[Floats], first: Sequence[int], generator: np.random.Generator, permutations: int = 9_999
) -> PermutationTest:
    """Whether the first ``first[i]`` texts of prompt i differ from the rest in what all prompts have in common: words,
    style, language. Labels are permuted within each prompt.

    The statistic is the squared distance of the two means over all prompts.
    """
    centred = [each - each.mean(axis=0) for each in features]
    weights = [_weights(len(each), count) / len(features) for each, count in zip(features, first, strict=True)]

    def statistics(count: int) -> Floats:
        total = np.zeros((count, centred[0].shape[1]))
        for each, weight in zip(centred, weights, strict=True):
            total += generator.permuted(np.broadcast_to(weight, (count, len(weight))), axis=1) @ each
        return np.asarray((total**2).sum(axis=1), dtype=np.float64)

    mean = sum(weight @ each for each, weight in zip(centred, weights, strict=True))
    return _permuted(float((mean**2).sum()), statistics, permutations)


def mmd_test(
    kernels: Sequence[Floats], first: Sequence[int], generator: np.random.Generator, permutations: int = 9_999
) -> PermutationTest:
    """Whether the first ``first[i]`` texts of prompt i differ from the rest, over all prompts together.

    The statistic is the squared maximum mean discrepancy, summed over prompts (biased, which permutation undoes).
    """
    weights = [_weights(len(kernel), count) for kernel, count in zip(kernels, first, strict=True)]

    def statistics(count: int) -> Floats:
        total = np.zeros(count)
        for kernel, weight in zip(kernels, weights, strict=True):
            drawn = generator.permuted(np.broadcast_to(weight, (count, len(weight))), axis=1)
            total += ((drawn @ kernel) * drawn).sum(axis=1)
        return total

    observed = sum(float(weight @ kernel @ weight) for kernel, weight in zip(kernels, weights, strict=True))
    return _permuted(observed, statistics, permutations)


def _weights(n: int, first: int) -> Floats:
    if not 0 < first < n:
        raise ValueError(f"{first} of {n} texts are no two samples")
    return np.concatenate([np.full(first, 1 / first), np.full(n - first, -1 / (n - first))])


def repeats_test(
    texts: Sequence[Sequence[str]], first: Sequence[int], generator: np.random.Generator, permutations: int = 9_999
) -> PermutationTest:
    """Whether the first ``first[i]`` texts of prompt i repeat each other more often than all of its texts do. The
    statistic is the number of equal pairs.
    """
    groups = [np.unique(list(each), return_inverse=True)[1] for each in texts]

    def statistics(count: int) -> Floats:
        total = np.zeros(count)
        for group, chosen in zip(groups, first, strict=True):
            drawn = generator.permuted(np.broadcast_to(group, (count, len(group))), axis=1)[:, :chosen]
            total += _equal_pairs(drawn)
        return total

    observed = sum(float(_equal_pairs(group[None, :k])[0]) for group, k in zip(groups, first, strict=True))
    return _permuted(observed, statistics, permutations)


def _equal_pairs(rows: NDArray[np.int64]) -> Floats:
    same = rows[:, :, None] == rows[:, None, :]
    return np.asarray((same.sum(axis=(1, 2)) - rows.shape[1]) / 2, dtype=np.float64)


def odd_one_out(distances: Floats, generator: np.random.Generator, permutations: int = 9_999) -> PermutationTest:
    """Whether one of three is farther from the other two than these are from each other, over all rows together.

    Each row: its distances to the first and to the second of the others, and theirs. If all three are alike, each of
    them could have been the one: that is what is permuted, row by row. ValueError for no rows.
    """
    if not len(distances):
        raise ValueError("no rows, no test")
    # the row's statistic where each of the three is the odd one
    excess = distances.sum(axis=1, keepdims=True) / 2 - 1.5 * distances[:, ::-1]

    def statistics(count: int) -> Floats:
        chosen = generator.integers(0, 3, size=(count, len(excess)))
        return np.asarray(excess[np.arange(len(excess)), chosen].sum(axis=1), dtype=np.float64)

    return _permuted(float(excess[:, 0].sum()), statistics, permutations)


def _permuted(observed: float, draw: Callable[[int], Floats], permutations: int) -> PermutationTest:
    # sums of the same numbers in another order differ in their last bits
    bar = observed - 1e-9 * max(1.0, abs(observed))
    drawn = larger = 0
    while drawn < permutations:
        part = draw(min(PART, permutations - drawn)) >= bar
        needed = ENOUGH - larger
        if int(part.sum()) >= needed:
            drawn += int(np.flatnonzero(part)[needed - 1]) + 1
            return PermutationTest(statistic=observed, p=ENOUGH / drawn, permutations=drawn)
        larger += int(part.sum())
        drawn += len(part)
    return PermutationTest(statistic=observed, p=(larger + 1) / (drawn + 1), permutations=drawn)
