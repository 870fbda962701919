"""The thinking switch, effort, the reasoning field, and reasoning in the history."""

from __future__ import annotations

from typing import ClassVar

from kvv.cases.contract import ContractSuite
from kvv.core import Area


class ThinkingSuite(ContractSuite):
    id: ClassVar[str] = "thinking"
    title: ClassVar[str] = "Thinking"
    areas: ClassVar[tuple[Area, ...]] = (Area.REASONING,)
