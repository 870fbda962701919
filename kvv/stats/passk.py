"""avg@k, pass@k and pass^k of one question from n samples of which c are right; average them over questions."""

from __future__ import annotations

from math import comb


def _check(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"k={k}, n={n} samples, c={c} right: need 0 <= c <= n and 1 <= k <= n")


def avg_at_k(n: int, c: int) -> float:
    """c/n."""
    _check(n, c, 1)
    return c / n


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased probability that at least one of k samples is right: 1 - C(n-c, k)/C(n, k) (Chen et al.,
    arXiv:2107.03374).
    """
    _check(n, c, k)
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Unbiased probability that all of k samples are right: C(c, k)/C(n, k) (tau-bench, arXiv:2406.12045)."""
    _check(n, c, k)
    return comb(c, k) / comb(n, k)
