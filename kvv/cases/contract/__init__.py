"""Contract suites: a case file expanded over thinking and stream modes, and the steps that reach one verdict per
case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from kvv.cases.case_file import Names, load_case_file
from kvv.cases.contract.build import Unbuildable, build
from kvv.cases.contract.expand import can_force, expand, expected_of, is_claimed, plain_case, thinking_off, thinks
from kvv.cases.contract.rates import RateTally
from kvv.cases.contract.steps import COMMON, Toolbox, contract_step
from kvv.cases.suite import Context, Suite, SuiteKind
from kvv.core import Case, History, Stat, Step, Verdict

__all__ = [
    "COMMON",
    "ContractSuite",
    "RateTally",
    "Toolbox",
    "can_force",
    "contract_step",
    "expected_of",
    "is_claimed",
    "names_of",
    "plain_case",
    "thinking_off",
    "thinks",
]


class ContractSuite(Suite):
    """A suite whose cases come from its ``cases.toml``. ``toolbox`` is what that file may name beside the common
    functions.
    """

    kind: ClassVar[SuiteKind] = SuiteKind.CONTRACT
    toolbox: ClassVar[Toolbox] = COMMON

    def cases(self, context: Context) -> Sequence[Case]:
        return list(expand(self.id, load_case_file(self.id, names_of(self.toolbox)), context))

    def step(self, case: Case, history: History) -> Step:
        return contract_step(case, history, self.version, self.toolbox)

    def bodies(self, case: Case) -> Iterator[Any]:
        """Each round's requests, built; what is made of an earlier answer stays as the case file has it."""
        if case.inputs["skip"]:
            return
        for entry in case.inputs["rounds"]:
            for request in entry["requests"].values():
                try:
                    yield build(request.get("body", request.get("raw")), {}, self.toolbox.builders)
                except (Unbuildable, KeyError):
                    yield request.get("body")

    def metrics(self, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
        return []


def names_of(toolbox: Toolbox) -> Names:
    return Names(
        checks=frozenset(toolbox.checks),
        comparisons=frozenset(toolbox.comparisons),
        directives=frozenset(toolbox.builders),
    )
