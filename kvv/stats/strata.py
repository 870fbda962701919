"""Exact tests of two groups whose members were observed side by side, block by block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from math import comb

from kvv.core.lazy import numpy as np

#: blocks that a p-value is made of, the first ones: more change no decision, and the time grows with their square
BLOCKS = 100


@dataclass(frozen=True, slots=True)
class Block:
    """Of ``n`` observations ``hits``; of the ``group``, which are some of them, ``group_hits``."""

    n: int
    hits: int
    group: int
    group_hits: int

    @property
    def tells(self) -> bool:
        """Whether it can tell the groups apart at all."""
        return 0 < self.hits < self.n and 0 < self.group < self.n


def stratified_exact_p(blocks: Iterable[Block]) -> float:
    """One-sided p-value that the group is hit no more often than the others: the chance of as many hits in the group
    or more, where each block's hits fall on its members at random (Fisher's exact test over several tables, Mantel &
    Haenszel, J. Natl. Cancer Inst. 22 (1959); exact as in Cox & Snell, Analysis of Binary Data, 2.4).

    A block in which all or none are hit tells nothing. 1.0 where no block tells anything.
    """
    chances = np.ones(1)
    seen = 0
    for block in islice((block for block in blocks if block.tells), BLOCKS):
        chances = np.convolve(chances, _hypergeometric(block))
        seen += block.group_hits
    return min(1.0, float(chances[seen:].sum()))


def _hypergeometric(block: Block) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The chance of 0, 1, ... hits in the group."""
    ways = comb(block.n, block.hits)
    return np.array(
        [
            comb(block.group, hits) * comb(block.n - block.group, block.hits - hits) / ways
            for hits in range(min(block.group, block.hits) + 1)
        ]
    )
