"""The pre-check: does the endpoint enforce the decoding parameters its model was released with? If not, no benchmark is worth its money."""

from __future__ import annotations

from typing import ClassVar

from kvv.contract import ContractSuite
from kvv.model import Area
from kvv.suite import SuiteKind


class ParamsSuite(ContractSuite):
    id: ClassVar[str] = "params"
    title: ClassVar[str] = "Decoding parameters"
    kind: ClassVar[SuiteKind] = SuiteKind.GATE
    areas: ClassVar[tuple[Area, ...]] = (Area.DECODING, Area.ERRORS)
