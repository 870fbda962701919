"""Two or more finished runs aligned by case. Pure; runs come as ``RunSummary`` values, read by
``kvv.storage.run_summary_reader``.
"""

from __future__ import annotations

from kvv.analysis.comparability import KINDS, Unlike, differences, find_refused
from kvv.analysis.compare import (
    AreaPair,
    Comparison,
    DiscordantCase,
    SuiteComparison,
    UnlikeRuns,
    compare,
    label,
    with_answers,
)
from kvv.analysis.pairs import PairMeasure, PairResult, compare_pair, measures, tie_groups
from kvv.storage.run_summary import CaseResult, Measured, RunSummary, SampleResult, Service, SuiteResult, SummaryRow

__all__ = [
    "KINDS",
    "AreaPair",
    "CaseResult",
    "Comparison",
    "DiscordantCase",
    "Measured",
    "PairMeasure",
    "PairResult",
    "RunSummary",
    "SampleResult",
    "Service",
    "SuiteComparison",
    "SuiteResult",
    "SummaryRow",
    "Unlike",
    "UnlikeRuns",
    "compare",
    "compare_pair",
    "differences",
    "find_refused",
    "label",
    "measures",
    "tie_groups",
    "with_answers",
]
