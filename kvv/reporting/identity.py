"""What `kvv identity` found: a document, and identity.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvv.decision.identity import ALPHA, IdentityResult, ProbePairs
from kvv.rendering.document import Document, DocumentTable, Excerpt, Section, Value
from kvv.rendering.escape import jsonable

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityReport:
    """``form_p``: how surprising it is that answers to requests that name kvv differ so much from answers to those that
    do not, None where only one form was asked. ``notes``: what was not looked at, and why.
    """

    title: str
    result: IdentityResult
    form_p: float | None
    probes: ProbePairs
    notes: Sequence[str]
    rules: Mapping[str, int]
    facts: Mapping[str, Any]

    @property
    def headline(self) -> str:
        return f"{self.result.outcome.value.upper()}: {self.result.sentence}"

    @property
    def recognised(self) -> bool:
        return (self.form_p is not None and self.form_p < ALPHA) or self.probes.p < ALPHA


def document(report: IdentityReport) -> Document:
    result = report.result
    rows: list[tuple[Value, ...]] = [
        (look.name, f"{look.p:.2g}", f"{look.theirs:.3g}", f"{look.ours:.3g}", look.unit, look.n)
        for look in result.looks
    ]
    columns = ("look", "p", "official to itself", "endpoint to official", "unit", "n")
    sections = [
        Section(
            title="Looks",
            notes=(
                f"One p-value is reported over all of them (Bonferroni); below {ALPHA:g} a difference is said. It says"
                " that the model is served differently, not that it is worse: the benchmarks tell that.",
                *report.notes,
            ),
            tables=(DocumentTable(name="looks", columns=columns, rows=tuple(rows)),),
        )
    ]
    sections.append(_recognised(report))
    if result.repeated:
        sections.append(
            Section(
                title="Answers are repeated at temperature 1",
                notes=(
                    f"The endpoint repeats itself more often than the official one (p {result.repeats_p:.2g}): it may"
                    " answer from a cache, or sample at another temperature.",
                ),
                excerpts=tuple(Excerpt(line="came again", texts=(("answer", text),)) for text in result.repeated),
            )
        )
    if report.rules:
        wire: tuple[tuple[Value, ...], ...] = tuple(sorted(report.rules.items()))
        table = DocumentTable(name="rules", columns=("wire rule", "answers"), rows=wire)
        sections.append(Section(title="Wire rules of level must that objected", tables=(table,)))
    return Document(title=report.headline, lead=(report.title,), sections=tuple(sections), outcome=result.outcome.value)


def _recognised(report: IdentityReport) -> Section:
    """Whether requests that look like a harness's are answered differently."""
    probes = report.probes
    notes = [
        f"Small tasks as harnesses put them: {probes.recognisable} of {probes.n} right; rewritten:"
        f" {probes.rewritten} of {probes.n} (p {probes.p:.2g})."
    ]
    if report.form_p is not None:
        notes.append(f"The same prompts with and without kvv's user agent: p {report.form_p:.2g}.")
    if report.recognised:
        notes.append("Benchmarks of this endpoint may not show what its users get; run them with --discreet.")
    title = "Requests that look like a harness's are answered " + ("differently" if report.recognised else "alike")
    return Section(title=title, notes=tuple(notes))


def as_json(report: IdentityReport, *, code: int) -> str:
    result = report.result
    data = {
        "identity_version": VERSION,
        "experimental": True,
        **report.facts,
        "verdict": result.outcome.value,
        "exit_code": code,
        "headline": report.headline,
        "p": result.p,
        "alpha": ALPHA,
        "official_p": result.official_p,
        "looks": [
            {
                "name": look.name,
                "p": look.p,
                "official_to_itself": look.theirs,
                "endpoint_to_official": look.ours,
                "unit": look.unit,
                "n": look.n,
            }
            for look in result.looks
        ],
        "repeats_p": result.repeats_p,
        "repeated": list(result.repeated),
        "recognised_p": report.form_p,
        "recognised": report.recognised,
        "probes": {
            "recognisable": report.probes.recognisable,
            "rewritten": report.probes.rewritten,
            "n": report.probes.n,
            "p": report.probes.p,
        },
        "rules": dict(report.rules),
        "notes": list(report.notes),
    }
    return json.dumps(jsonable(data), ensure_ascii=True, allow_nan=False, indent=1) + "\n"
