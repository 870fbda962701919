"""Tool calls: schemas honoured, names, ids, parallel calls, loops of calls and results.

Every schema of ``fixtures/tools`` is asked as the parameters of a forced tool, streamed and not. The tiers nightly and
full ask all of them, the tier smoke a fixed part in which every keyword, type and group comes twice: some eighty
requests instead of five hundred. ``--data tools=DIR`` adds a case pair for each line of a folder of one-schema-per-line
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kvv.cases.contract import COMMON, ContractSuite, Toolbox
from kvv.cases.suite import Context
from kvv.core import Area, Case
from kvv.suites.tools.checks import BUILDERS, CHECKS
from kvv.suites.tools.schemas import data_cases, shipped_cases

#: cases that cost too much for the small tier
LARGE = ("tools/large-arguments/",)


class ToolsSuite(ContractSuite):
    id: ClassVar[str] = "tools"
    title: ClassVar[str] = "Tool calls"
    areas: ClassVar[tuple[Area, ...]] = (Area.TOOLS,)
    toolbox: ClassVar[Toolbox] = COMMON.extended(checks=CHECKS, builders=BUILDERS)
    dataset: ClassVar[str | None] = "tools"
    dataset_optional: ClassVar[bool] = True

    def cases(self, context: Context) -> Sequence[Case]:
        rows = context.dataset.rows if context.dataset is not None else ()
        written = [case for case in super().cases(context) if context.tier != "smoke" or not case.id.startswith(LARGE)]
        return [*written, *shipped_cases(context), *data_cases(rows, context)]
