"""Whether response_format is obeyed, and malformed ones are refused."""

from __future__ import annotations

from typing import ClassVar

from kvv.contract import ContractSuite
from kvv.model import Area


class ResponseFormatSuite(ContractSuite):
    id: ClassVar[str] = "response_format"
    title: ClassVar[str] = "Response format"
    areas: ClassVar[tuple[Area, ...]] = (Area.RESPONSE_FORMAT,)
