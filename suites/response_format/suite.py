"""Whether response_format is obeyed, and malformed ones are refused."""

from __future__ import annotations

from typing import ClassVar

from kvv.cases.contract import ContractSuite
from kvv.core import Area


class ResponseFormatSuite(ContractSuite):
    id: ClassVar[str] = "response_format"
    title: ClassVar[str] = "Response format"
    areas: ClassVar[tuple[Area, ...]] = (Area.RESPONSE_FORMAT,)
