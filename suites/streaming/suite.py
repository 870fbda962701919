"""Streams: the same answer as without, delivered as it is made, whole in every script, cut where it must be cut.

The passive rules look at the frames of every exchange; these cases make the exchanges worth looking at.
"""

from __future__ import annotations

from typing import ClassVar

from kvv.cases.contract import COMMON, ContractSuite, Toolbox
from kvv.core import Area
from kvv.suites.streaming import logprobs
from kvv.suites.streaming.checks import CHECKS, COMPARISONS


class StreamingSuite(ContractSuite):
    id: ClassVar[str] = "streaming"
    title: ClassVar[str] = "Streaming"
    areas: ClassVar[tuple[Area, ...]] = (Area.STREAMING,)
    toolbox: ClassVar[Toolbox] = COMMON.extended(checks={**CHECKS, **logprobs.CHECKS}, comparisons=COMPARISONS)
