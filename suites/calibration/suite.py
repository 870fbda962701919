"""Measurements of an official endpoint: each probe beside a plain request, three rounds a day, in a shuffled order.

A case judges nothing: it passes when the endpoint said something definite (an answer, or a refusal beside an answered
plain request), and its facts say what. ``kvv calibrate`` makes a profile of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, ClassVar

from kvv.cases.suite import Context, Suite, SuiteKind
from kvv.core import Answered, Area, Ask, Case, Done, History, Level, Outcome, Request, Stat, Step, Verdict
from kvv.protocol.classify import Classification, assess
from kvv.suites.calibration.probes import BEYOND, READY, ROOM, WITNESSES, Probe, probes

ROUNDS = 3
_WINDOW = re.compile(r"context[^0-9]{0,60}([0-9][0-9,]{3,9})", re.IGNORECASE)
#: forms of ids that servers use, most telling first
_FORMS = (
    (re.compile(r"functions\.[A-Za-z0-9_.-]+:[0-9]+"), r"functions\.[A-Za-z0-9_.-]+:[0-9]+"),
    (re.compile(r"get_weather_[0-9]+"), "[A-Za-z0-9_-]+_[0-9]+"),
    (re.compile(r"[A-Za-z0-9]{9}"), "[A-Za-z0-9]{9}"),
)
_PREFIX = re.compile(r"((?:[a-z]{2,12}[-_])+)[A-Za-z0-9_-]{6,}")


class CalibrationSuite(Suite):
    id: ClassVar[str] = "calibration"
    title: ClassVar[str] = "Calibration"
    kind: ClassVar[SuiteKind] = SuiteKind.CONTRACT
    areas: ClassVar[tuple[Area, ...]] = (Area.DECODING,)

    def cases(self, context: Context) -> Sequence[Case]:
        each = list(probes(context))
        cases = [_case(probe, number, context) for number in range(1, ROUNDS + 1) for probe in each]
        return sorted(cases, key=lambda case: sha256(f"{context.seed}/{case.id}".encode()).digest())

    def step(self, case: Case, history: History) -> Step:
        replies = [answered for reply in history if isinstance(reply, tuple) for answered in reply]
        if not replies:
            inputs = case.inputs
            return Ask(
                requests=(
                    Request(body=inputs["body"], stream=False, purpose="probe"),
                    Request(body=inputs["control"], stream=False, purpose="control"),
                )
            )
        by_purpose = {reply.request.purpose: reply for reply in replies}
        return Done(verdict=_verdict(case, by_purpose["probe"], by_purpose["control"]))

    def metrics(self, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
        return []


def _case(probe: Probe, number: int, context: Context) -> Case:
    plain = {"model": context.model, "messages": [{"role": "user", "content": READY}], "max_tokens": ROOM}
    asked = {
        "model": context.model,
        "messages": [dict(message) for message in probe.messages] or [{"role": "user", "content": probe.prompt}],
        "max_tokens": probe.max_tokens,
    }
    asked |= context.profile.thinking_body(on=probe.switch, effort=probe.effort, mode=probe.mode)
    asked |= probe.fields
    extra = dict(context.settings.extra_body)
    return Case(
        id=f"calibration/{probe.fact}/round-{number}",
        suite="calibration",
        area=Area.DECODING,
        level=Level.MAY,
        requirement="What the endpoint does with this request is written down",
        source="kvv calibrate",
        since="0.2",
        inputs={
            "body": {**asked, **extra},
            "control": {**plain, **extra},
            "stream": False,
            "skip": "",
            "requests": 2,
            "fact": probe.fact,
            "witness": probe.witness,
            "reads": probe.reads,
            "fields": dict(probe.fields) if probe.parameter else {},
            "thinking": "" if probe.switch is None or not probe.parameter else "on" if probe.switch else "off",
        },
    )


def _verdict(case: Case, probe: Answered, control: Answered) -> Verdict:
    found, beside = (assess(one.exchange, one.observation) for one in (probe, control))
    if beside.standing is not Classification.ANSWERED:
        return Verdict(
            case=case.id,
            sample=case.sample,
            outcome=Outcome.INCONCLUSIVE,
            reason="control-not-answered",
            detail=beside.detail or beside.reason,
        )
    if not found.spoken:
        return Verdict(
            case=case.id, sample=case.sample, outcome=Outcome.INCONCLUSIVE, reason=found.reason, detail=found.detail
        )
    return Verdict(case=case.id, sample=case.sample, outcome=Outcome.PASS, facts=_facts(case, probe, found.standing))


def _facts(case: Case, probe: Answered, standing: Classification) -> dict[str, Any]:
    seen, answered = probe.observation, standing is Classification.ANSWERED
    witness = case.inputs["witness"]
    facts: dict[str, Any] = {
        "answered": answered,
        "obeyed": None if not witness else answered and WITNESSES[witness](seen),
        "values": [],
        "texts": [],
    }
    match case.inputs["reads"]:
        case "tokens" if (count := seen.tokens("prompt_tokens")) is not None:
            facts["values"] = [count]
        case "window" if seen.error is not None and (told := _WINDOW.search(seen.error.message or "")):
            number = int(told[1].replace(",", ""))
            facts["values"] = [number] if number < BEYOND else []
        case "reasoning" if seen.first.reasoning_field:
            facts["texts"] = (
                [seen.first.reasoning_field] if re.fullmatch(r"[a-z_]{1,40}", seen.first.reasoning_field) else []
            )
        case "chat-id":
            facts["texts"] = forms([seen.id])
        case "tool-id":
            facts["texts"] = forms([call.id for call in seen.tool_calls])
    return facts


def forms(ids: Iterable[str | None]) -> list[str]:
    """The regular expressions of the known forms that these ids have, "" for an id of none."""
    return sorted({_form(one) for one in ids if one})


def _form(text: str) -> str:
    known = next((form for pattern, form in _FORMS if pattern.fullmatch(text)), None)
    if known is not None:
        return known
    led = _PREFIX.fullmatch(text)
    return f"{re.escape(led[1])}[A-Za-z0-9_-]+" if led else ""
