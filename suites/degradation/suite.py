"""Answers that get worse: with a cache hit, beside other requests, under load, with length, and as the run goes on.

Almost every answer here is fixed by a schema, so that a wrong one needs no reference. The first probes of the suite
come again at its end (as risky cases, which run last): what failed only there had drifted.
"""

from __future__ import annotations

from typing import ClassVar

from kvv.cases.contract import COMMON, ContractSuite, Toolbox
from kvv.core import Area
from kvv.suites.degradation.checks import BUILDERS, CHECKS, COMPARISONS


class DegradationSuite(ContractSuite):
    id: ClassVar[str] = "degradation"
    title: ClassVar[str] = "Degradation"
    areas: ClassVar[tuple[Area, ...]] = (Area.DEGRADATION,)
    toolbox: ClassVar[Toolbox] = COMMON.extended(checks=CHECKS, comparisons=COMPARISONS, builders=BUILDERS)
