"""The exact test over blocks: agrees with Fisher's on one table, and with a plain count of all ways on two."""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import pytest

from kvv.stats.strata import Block, stratified_exact_p


def test_one_block_is_fishers_exact_test() -> None:
    # Fisher's tea: 4 of 4 cups named rightly, one way of comb(8, 4)
    assert stratified_exact_p([Block(n=8, hits=4, group=4, group_hits=4)]) == pytest.approx(1 / 70)
    assert stratified_exact_p([Block(n=8, hits=4, group=4, group_hits=3)]) == pytest.approx(17 / 70)


def test_two_blocks_are_all_ways_to_divide_their_hits() -> None:
    blocks = [Block(n=5, hits=2, group=3, group_hits=2), Block(n=4, hits=2, group=2, group_hits=1)]
    ways = [
        sum(member < block.group for block, hit in zip(blocks, division, strict=True) for member in hit)
        for division in product(*(combinations(range(block.n), block.hits) for block in blocks))
    ]
    assert len(ways) == comb(5, 2) * comb(4, 2)
    assert stratified_exact_p(blocks) == pytest.approx(sum(hits >= 3 for hits in ways) / len(ways))


@pytest.mark.parametrize(
    "block",
    [
        Block(n=40, hits=40, group=20, group_hits=20),  # an outage hits all
        Block(n=40, hits=0, group=20, group_hits=0),
        Block(n=40, hits=12, group=40, group_hits=12),  # nobody without it was asked
    ],
)
def test_a_block_in_which_all_fare_alike_tells_nothing(block: Block) -> None:
    assert stratified_exact_p([block] * 5) == 1.0
