"""Pictures: every format and shape that clients send, in the order in which they stand, none mixed up with another.

The pictures are drawn here (drawing.py), so that the right answer is known; large plain digits and colours are no test
of eyesight. A model may still misread one: answers are judged by rate, or must be wrong twice.
"""

from __future__ import annotations

from typing import ClassVar

from kvv.cases.contract import COMMON, ContractSuite, Toolbox
from kvv.core import Area
from kvv.suites.vision.checks import CHECKS
from kvv.suites.vision.pictures import BUILDERS


class VisionSuite(ContractSuite):
    id: ClassVar[str] = "vision"
    title: ClassVar[str] = "Vision"
    areas: ClassVar[tuple[Area, ...]] = (Area.VISION,)
    toolbox: ClassVar[Toolbox] = COMMON.extended(checks=CHECKS, builders=BUILDERS)
