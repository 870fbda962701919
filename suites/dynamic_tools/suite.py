"""Tools declared in system messages: accepted, visible, callable, validated (Kimi K3)."""

from __future__ import annotations

from typing import ClassVar

from kvv.cases.contract import ContractSuite
from kvv.core import Area


class DynamicToolsSuite(ContractSuite):
    id: ClassVar[str] = "dynamic_tools"
    title: ClassVar[str] = "Dynamic tools"
    areas: ClassVar[tuple[Area, ...]] = (Area.DYNAMIC_TOOLS,)
