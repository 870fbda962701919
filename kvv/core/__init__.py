"""The vocabulary of the project: what is planned, sent, received, observed, judged and reported.

Frozen, slotted, keyword-only dataclasses and closed enumerations; nothing here does I/O. The flow is

    Case -> Request -> Exchange -> Observation -> Verdict -> Stat -> Gate
                        frames  -> Finding  (on every exchange)
"""

from __future__ import annotations

from kvv.core.dataset import Dataset
from kvv.core.exchange import (
    Choice,
    ErrorBody,
    Exchange,
    Fault,
    Frame,
    Observation,
    Shape,
    Timing,
    ToolCall,
    Upstream,
    UsageReport,
)
from kvv.core.request import Case, Fragment, Identity, Picture, PictureForm, Request, Timeouts
from kvv.core.steps import Answered, Ask, Command, Done, Exec, Executed, History, Reply, Step
from kvv.core.verdict import Evidence, Finding, Gate, InterimResult, ReferenceValue, Stat, Verdict
from kvv.core.vocabulary import STRENGTH, Area, Credential, FaultKind, FindingKind, Level, Outcome, Role, Surface

__all__ = [
    "STRENGTH",
    "Answered",
    "Area",
    "Ask",
    "Case",
    "Choice",
    "Command",
    "Credential",
    "Dataset",
    "Done",
    "ErrorBody",
    "Evidence",
    "Exchange",
    "Exec",
    "Executed",
    "Fault",
    "FaultKind",
    "Finding",
    "FindingKind",
    "Fragment",
    "Frame",
    "Gate",
    "History",
    "Identity",
    "InterimResult",
    "Level",
    "Observation",
    "Outcome",
    "Picture",
    "PictureForm",
    "ReferenceValue",
    "Reply",
    "Request",
    "Role",
    "Shape",
    "Stat",
    "Step",
    "Surface",
    "Timeouts",
    "Timing",
    "ToolCall",
    "Upstream",
    "UsageReport",
    "Verdict",
]
