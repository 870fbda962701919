"""Instances that are known to be broken, each with the place that says so. They are run, counted, and shown apart;
never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

_GOLD = (  # the reference patch failed in 2025-01; maintainers say fixed on main in 2026-08
    "https://github.com/SWE-bench/SWE-bench/issues/294"
)
_ALWAYS = "https://github.com/SWE-bench/sb-cli/issues/15"
_AT_TIMES = "https://github.com/SWE-bench/sb-cli/issues/20"
_DEEP = "https://github.com/datacurve-ai/deep-swe/issues"

KNOWN_BAD: Mapping[str, str] = {
    "astropy__astropy-7166": _GOLD,
    "astropy__astropy-7336": _GOLD,
    "astropy__astropy-7606": _ALWAYS,
    "astropy__astropy-7671": _GOLD,
    "astropy__astropy-8707": _ALWAYS,
    "astropy__astropy-8872": _ALWAYS,
    "django__django-10097": _ALWAYS,
    "matplotlib__matplotlib-20488": _GOLD,
    "psf__requests-1724": _AT_TIMES,
    "psf__requests-2317": _GOLD,
    "pylint-dev__pylint-6528": _ALWAYS,
    "pylint-dev__pylint-7080": _GOLD,
    "pylint-dev__pylint-7277": _ALWAYS,
    "sphinx-doc__sphinx-10323": _GOLD,
    "sphinx-doc__sphinx-10435": _GOLD,
    "sympy__sympy-13091": _AT_TIMES,
    "koota-entity-snapshot-rollback": f"{_DEEP}/1",
    "prometheus-transactional-reload-status": f"{_DEEP}/52",
    "langchain-request-coalescing": f"{_DEEP}/12",
}


def known_bad(instance: str) -> str:
    """Where it is said that the instance is broken, "" where nobody says so."""
    return KNOWN_BAD.get(instance, "")
