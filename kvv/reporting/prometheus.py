"""Nights as Prometheus text (exposition format 0.0.4), for a node exporter's text-file collector. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kvv.storage.run_summary import RunSummary

#: name -> (type, help); every sample names its vendor and model
METRICS = {
    "kvv_night_exit_code": "exit code of the night: 0 no worse, 1 worse, 3 cannot tell, 4 our own error",
    "kvv_night_finished_seconds": "when the run ended, seconds since 1970",
    "kvv_gate": "a gate's decision: 0 pass, 1 fail, 3 inconclusive",
    "kvv_score": "a row's value, 0 to 1",
    "kvv_score_questions": "questions that the value rests on",
    "kvv_first_try": "share of requests answered at the first attempt",
    "kvv_ttft_seconds": "median time to first token",
    "kvv_itl_seconds": "median inter-token latency",
    "kvv_output_tokens_per_second": "median output rate of one answer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NightSample:
    """One endpoint's night; ``run`` is None where nothing was measured, ``gates`` is (id, exit code)."""

    vendor: str
    model: str
    code: int
    run: RunSummary | None = None
    gates: Sequence[tuple[str, int]] = field(default_factory=tuple)


def render(nights: Iterable[NightSample]) -> str:
    """Every metric once, with a line for each endpoint that has it."""
    lines: dict[str, list[str]] = {name: [] for name in METRICS}

    def put(name: str, value: float | None, **labels: str) -> None:
        if value is not None:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines[name].append(f"{name}{{{inside}}} {value:.17g}")

    for night in nights:
        who = {"vendor": night.vendor, "model": night.model}
        put("kvv_night_exit_code", night.code, **who)
        for gate, code in night.gates:
            put("kvv_gate", code, **who, gate=gate)
        if night.run is None:
            continue
        put("kvv_night_finished_seconds", _seconds(night.run.date), **who)
        for suite in night.run.suites.values():
            for row in suite.rows:
                put("kvv_score", row.value, **who, suite=suite.id, metric=row.metric)
                put("kvv_score_questions", row.n, **who, suite=suite.id, metric=row.metric)
        service = night.run.service
        put("kvv_first_try", service.first_try.value, **who)
        put("kvv_ttft_seconds", _from_ms(service.ttft_ms.value), **who)
        put("kvv_itl_seconds", _from_ms(service.itl_ms.value), **who)
        put("kvv_output_tokens_per_second", service.output_tps.value, **who)
    return "".join(
        f"# HELP {name} {help}\n# TYPE {name} gauge\n" + "".join(f"{line}\n" for line in lines[name])
        for name, help in METRICS.items()
        if lines[name]
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _from_ms(value: float | None) -> float | None:
    return None if value is None else value / 1000


def _seconds(date: str) -> float | None:
    try:
        return datetime.fromisoformat(date).timestamp()
    except ValueError:
        return None
