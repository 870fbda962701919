"""Many differences in one list: Benjamini and Hochberg (J. R. Stat. Soc. B 57, 1995).

Only for saying which entries differ. "All gates must pass" needs no correction: an intersection-union test (Berger
1982).
"""

from __future__ import annotations

from collections.abc import Sequence


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the order given: reject those at or below q for a false-discovery rate of q."""
    if any(not 0 <= p <= 1 for p in p_values):
        raise ValueError("a p-value outside [0, 1]")
    m = len(p_values)
    adjusted = [1.0] * m
    smallest = 1.0
    for rank, index in reversed(list(enumerate(sorted(range(m), key=lambda i: p_values[i]), start=1))):
        smallest = min(smallest, p_values[index] * m / rank)
        adjusted[index] = smallest
    return adjusted
