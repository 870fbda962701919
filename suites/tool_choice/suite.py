"""Whether tool_choice is obeyed: auto, none, required, a named function, and nonsense."""

from __future__ import annotations

from typing import ClassVar

from kvv.cases.contract import ContractSuite
from kvv.core import Area


class ToolChoiceSuite(ContractSuite):
    id: ClassVar[str] = "tool_choice"
    title: ClassVar[str] = "Tool choice"
    areas: ClassVar[tuple[Area, ...]] = (Area.TOOL_CHOICE,)
