from __future__ import annotations

import numpy as np
import pytest

from kvv.stats.quantiles import quantile


@pytest.mark.parametrize(("q", "n"), [(0.5, 60), (0.95, 60), (0.95, 400), (0.99, 1000)])
def test_the_interval_covers_the_true_quantile_as_often_as_it_says(q: float, n: int) -> None:
    generator = np.random.default_rng(1)
    found = [quantile(generator.random(n), q) for _ in range(1500)]
    below = np.mean([one.low is not None and one.low > q for one in found])
    above = np.mean([one.high is not None and one.high < q for one in found])
    # each side leaves out at most 2.5 %; three standard errors of 1,500 draws are 1.2 points
    assert below <= 0.025 + 0.012
    assert above <= 0.025 + 0.012


def test_a_side_that_so_few_values_cannot_bound_stays_open() -> None:
    found = quantile(list(range(60)), 0.99)
    assert found.high is None
    assert found.low is not None
    assert quantile(list(range(500)), 0.99).high is not None


def test_no_values_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)
