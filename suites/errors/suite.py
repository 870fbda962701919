"""Bad requests are refused in the right form, and the endpoint survives them."""

from __future__ import annotations

from typing import ClassVar

from kvv.cases.contract import ContractSuite
from kvv.core import Area


class ErrorsSuite(ContractSuite):
    id: ClassVar[str] = "errors"
    title: ClassVar[str] = "Bad requests"
    areas: ClassVar[tuple[Area, ...]] = (Area.ERRORS,)
