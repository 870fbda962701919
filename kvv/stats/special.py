"""SciPy's special functions, imported when one is first called.

The import takes a third of a second (a whole one on a cold disk), which every command and every worker process
would pay that needs no quantile: listings, usage errors, judges of answers.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any


@cache
def _scipy() -> Any:
    return import_module("scipy.special")


def ndtr(x: Any) -> Any:
    """The standard normal distribution function."""
    return _scipy().ndtr(x)


def ndtri(p: Any) -> Any:
    """Its inverse."""
    return _scipy().ndtri(p)


def owens_t(h: Any, a: Any) -> Any:
    """Owen's T function."""
    return _scipy().owens_t(h, a)


def stdtrit(df: Any, p: Any) -> Any:
    """The quantile of Student's t."""
    return _scipy().stdtrit(df, p)


def pdtr(k: Any, mean: Any) -> Any:
    """The Poisson distribution function."""
    return _scipy().pdtr(k, mean)


def chdtr(df: Any, x: Any) -> Any:
    """The distribution function of chi-square."""
    return _scipy().chdtr(df, x)


def chdtrc(df: Any, x: Any) -> Any:
    """The upper tail of chi-square."""
    return _scipy().chdtrc(df, x)


def stdtr(df: Any, t: Any) -> Any:
    """The distribution function of Student's t."""
    return _scipy().stdtr(df, t)


def nctdtr(df: Any, shift: Any, t: Any) -> Any:
    """The distribution function of the noncentral t."""
    return _scipy().nctdtr(df, shift, t)


def betaincinv(a: Any, b: Any, p: Any) -> Any:
    """The quantile of the beta distribution."""
    return _scipy().betaincinv(a, b, p)


def bdtr(k: Any, n: Any, p: Any) -> Any:
    """The binomial distribution function."""
    return _scipy().bdtr(k, n, p)


def gammaln(x: Any) -> Any:
    """The logarithm of the gamma function."""
    return _scipy().gammaln(x)
