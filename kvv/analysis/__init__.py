"""Two or more finished runs aligned by case. Pure; runs come as ``Side`` values, read by
``kvv.storage.run_summary_reader``.
"""

from __future__ import annotations

from kvv.analysis.comparability import KINDS, Unlike, differences, refused
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
from kvv.analysis.pairs import Measure, PairResult, compare_pair, measures, tie_groups
from kvv.storage.run_summary import CaseResult, Measured, Row, SampleResult, Service, Side, SuiteResult

__all__ = [
    "KINDS",
    "AreaPair",
    "CaseResult",
    "Comparison",
    "DiscordantCase",
    "Measure",
    "Measured",
    "PairResult",
    "Row",
    "SampleResult",
    "Service",
    "Side",
    "SuiteComparison",
    "SuiteResult",
    "Unlike",
    "UnlikeRuns",
    "compare",
    "compare_pair",
    "differences",
    "label",
    "measures",
    "refused",
    "tie_groups",
    "with_answers",
]
