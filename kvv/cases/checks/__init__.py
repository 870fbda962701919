"""Named expectations that a case file can state about completions: ``checks`` of one answer, ``compare`` over
several.
"""

from __future__ import annotations

from kvv.cases.checks.answers import ANSWER_CHECKS
from kvv.cases.checks.base import Check, CheckInput, CheckProblem
from kvv.cases.checks.comparing import COMPARISONS

__all__ = ["ANSWER_CHECKS", "COMPARISONS", "Check", "CheckInput", "CheckProblem"]
