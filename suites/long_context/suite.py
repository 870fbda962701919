"""Long prompts: needles at the front, in the middle and at the end, counts that keep pace, default output budgets,
overflow.

Lengths depend on the tier: smoke asks 8k and 32k tokens, nightly adds 128k and 256k, full goes to four fifths of the
context window (the rest is room for tokenisers that cut finer than we estimate). Lengths beyond the profile's window
are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from kvv.cases.contract import COMMON, ContractSuite, Toolbox
from kvv.cases.suite import Context
from kvv.core import Area, Case
from kvv.suites.long_context.checks import CHECKS, COMPARISONS
from kvv.suites.long_context.haystack import BUILDERS

#: the word of a case id that names its length -> tokens it wants, and the tiers that ask it
LENGTHS: dict[str, tuple[int, tuple[str, ...]]] = {
    "8k": (8_000, ("smoke", "nightly", "full")),
    "32k": (32_000, ("smoke", "nightly", "full")),
    "128k": (128_000, ("nightly", "full")),
    "256k": (256_000, ("nightly", "full")),
    "window": (0, ("full",)),
    "overflow": (0, ("nightly", "full")),
}
#: the share of the window that a prompt of estimated length may take, with its answer
ROOM = 0.9


class LongContextSuite(ContractSuite):
    id: ClassVar[str] = "long_context"
    title: ClassVar[str] = "Long context"
    areas: ClassVar[tuple[Area, ...]] = (Area.LONG_CONTEXT, Area.USAGE)
    toolbox: ClassVar[Toolbox] = COMMON.extended(checks=CHECKS, comparisons=COMPARISONS, builders=BUILDERS)

    def cases(self, context: Context) -> Sequence[Case]:
        return [case for case in super().cases(context) if asked(case.id, context)]


def asked(case_id: str, context: Context) -> bool:
    """Whether this tier and this window ask a case of this length."""
    for word in re.split("[/-]", case_id):
        if word in LENGTHS:
            tokens, tiers = LENGTHS[word]
            return context.tier in tiers and tokens <= ROOM * context.profile.context_window
    return True
