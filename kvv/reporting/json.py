"""report.json, version 1: fields may be added, never changed. Its JSON Schema is report.schema.json beside this
file.
"""

from __future__ import annotations

import json
from typing import Any

from kvv.core import Gate, ReferenceValue, Stat
from kvv.decision.decide import WaiverState
from kvv.decision.features import FeatureRate
from kvv.decision.rule_rates import WeighedFinding
from kvv.rendering.escape import jsonable, uncommanding_json
from kvv.storage.view import Cause, CheckRow, Quantiles, RunView, TimingView, TrafficView

SCHEMA_VERSION = 1
#: characters of any text of one check: there may be ten thousand
CHECK_TEXT = 1_000
#: system fingerprints listed, the most frequent ones
FINGERPRINTS = 20
#: what every row's comparability block says, null where the suite did not say it
COMPARABILITY = ("data_revision", "sampling", "preset", "judge", "agent", "scorer_version", "failures_in_denominator")


def render(view: RunView) -> str:
    """ASCII JSON, a line per field and per list entry; the same view gives the same bytes."""
    return "{\n" + ",\n".join(f" {_dumps(key)}: {_lines(value)}" for key, value in report(view).items()) + "\n}\n"


def _lines(value: Any) -> str:
    """A list with an entry a line: readable, diffable, and many times faster than ``indent``."""
    if not isinstance(value, list) or not value:
        return _dumps(value)
    return "[\n" + ",\n".join(f"  {_dumps(entry)}" for entry in value) + "\n ]"


def _dumps(value: Any) -> str:
    return uncommanding_json(json.dumps(value, ensure_ascii=True, allow_nan=False))


def report(view: RunView) -> dict[str, Any]:
    """The report as JSON-like values, every text bounded."""
    run, decision = view.run, view.decision
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.run_id,
        "started": run.started,
        "finished": run.finished,
        "kvv_version": run.kvv_version,
        "seed": run.seed,
        "partial": run.partial,
        "coverage": decision.coverage,
        "headline": decision.headline,
        "verdict": decision.outcome.value,
        "contract": decision.contract.value,
        "quality": decision.quality.value,
        "why": list(decision.why),
        "trouble": view.trouble,
        "explained": view.explained,
        "causes": [],
        "exit_code": run.exit_code,
        "tier": run.tier,
        "preset": run.preset,
        "endpoint": {
            "base_url": view.endpoint.base_url,
            "model": view.endpoint.model,
            "vendor": view.endpoint.vendor,
            "upstreams": dict(view.endpoint.upstreams),
            **(
                {"fingerprints": dict(list(view.endpoint.fingerprints.items())[:FINGERPRINTS])}
                if view.endpoint.fingerprints
                else {}
            ),
        },
        "profile": view.profile,
        "surface": view.surface,
        "policy": {"name": view.policy.name, "sha256": view.policy.sha256},
        "waivers": [_waiver(w) for w in decision.waivers],
        "selected": [
            {"id": s.id, "title": s.title, "kind": s.kind.value, "skipped": s.skipped, "fixture": s.fixture}
            for s in view.suites
        ],
        "gates": [_gate(g) for g in decision.gates],
        "suites": [_row(s, view) for s in decision.stats],
        "checks": [],
        "unlisted": [{"suite": u.suite, "verdict": u.outcome.value, "n": u.n} for u in view.unlisted],
        "findings": [_finding(f) for f in decision.weighed],
        "features": [_feature(f) for f in decision.features],
        "areas": {area: outcome.value for area, outcome in decision.areas.items()},
        "area_coverage": {
            area.value: {
                "planned": c.planned,
                "asked": c.asked,
                "concluded": c.concluded,
                "skipped": dict(c.skipped),
                "minimum": c.minimum,
            }
            for area, c in decision.coverage_by_area.items()
        },
        "traffic": _traffic(view.traffic),
        "timing": _timing(view.timing),
        "events": [{"at": e.at, "kind": e.kind, "message": e.message} for e in view.events],
    }
    clean: dict[str, Any] = jsonable(found)
    # not through the bound on lists: every case stands in the report, each one bounded by itself
    clean["checks"] = [jsonable(_check(row), CHECK_TEXT) for row in view.checks]
    clean["causes"] = [jsonable(_cause(cause)) for cause in view.causes]
    return clean


def _waiver(waiver: WaiverState) -> dict[str, Any]:
    return {
        "case": waiver.case,
        "reason": waiver.reason,
        "owner": waiver.owner,
        "issue": waiver.issue,
        "expires": waiver.expires,
        "state": waiver.state,
        "subjects": list(waiver.subjects),
    }


def _gate(gate: Gate) -> dict[str, Any]:
    return {
        "id": gate.id,
        "area": gate.area.value,
        "level": gate.level.value,
        "verdict": gate.decision.value,
        "reason": gate.reason,
        "degraded": gate.degraded,
        "method": gate.method,
        "margin": gate.margin,
    }


def _reference(reference: ReferenceValue | None) -> dict[str, Any] | None:
    if reference is None:
        return None
    return {"value": reference.value, "n": reference.n, "kind": reference.kind, "source": reference.source}


def _look(stat: Stat) -> dict[str, Any]:
    """Only in rows of a run with early stopping."""
    look = stat.look
    if look is None:
        return {}
    return {
        "look": {
            "number": look.number,
            "of": look.of,
            "stopped": look.stopped,
            "asked": look.asked,
            "planned": look.planned,
            "bound": look.bound,
            "z": look.z,
            "confidence": look.confidence,
            "difference": list(look.interval),
        }
    }


def _row(stat: Stat, view: RunView) -> dict[str, Any]:
    known = {"preset": view.run.preset or None, **stat.comparability}
    return {
        "id": stat.suite,
        "metric": stat.metric,
        "primary": stat.primary,
        "value": stat.estimate,
        "kvv_value": stat.kvv_value,
        "moonshot_value": stat.kvv_value,
        "ci95": list(stat.interval) if stat.interval else None,
        "n_planned": stat.n_planned,
        "n_concluded": stat.n_concluded,
        "n_inconclusive": stat.n_inconclusive,
        "n_truncated": stat.n_truncated,
        "worst_case": stat.worst_case,
        "best_case": stat.best_case,
        "reference": _reference(stat.reference),
        "margin": stat.margin,
        **_look(stat),
        "verdict": stat.verdict.value if stat.verdict else None,
        "breakdown": dict(stat.breakdown),
        "comparability": {**dict.fromkeys(COMPARABILITY), **known},
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "id": cause.id,
        "kind": cause.kind.value,
        "title": cause.title,
        "detail": cause.detail,
        "sentence": cause.sentence,
        "reason": cause.reason,
        "rules": list(cause.rules),
        "level": cause.level.value,
        "counts": cause.counts,
        "areas": list(cause.areas),
        "suites": list(cause.suites),
        "cases": cause.cases,
        "answers": cause.answers,
        "waived": cause.waived,
        "levels": {level.value: n for level, n in cause.levels},
        "modes": list(cause.modes),
        "faults": [{"id": fault.id, "where": fault.where, "link": fault.link} for fault in cause.faults],
        "case_ids": list(cause.case_ids),
        "example": {
            "case": cause.example,
            "exchange": cause.exchange,
            "request": cause.request,
            "answer": cause.answer,
            "expected": cause.expected,
            "curl": cause.curl,
        },
    }


def _check(row: CheckRow) -> dict[str, Any]:
    case, verdict = row.case, row.verdict
    return {
        "id": row.id,
        "suite": case.suite,
        "sample": verdict.sample,
        "area": case.area.value,
        "level": row.level.value,
        "verdict": verdict.outcome.value,
        "waived": row.waived,
        "reason": verdict.reason,
        "detail": verdict.detail,
        "requirement": case.requirement,
        "source": case.source,
        "truncated": verdict.truncated,
        "scorer": verdict.scorer,
        "seconds": round(row.asked.seconds, 3),
        "ttft_ms": row.asked.ttft_ms,
        "prompt_tokens": row.asked.prompt_tokens,
        "completion_tokens": row.asked.completion_tokens,
        "values": dict(verdict.values),
        "evidence": [{"exchange": e.exchange, "frame": e.frame, "excerpt": e.excerpt[:400]} for e in verdict.evidence],
    }


def _finding(weighed: WeighedFinding) -> dict[str, Any]:
    group = weighed.finding
    return {
        "rule": group.rule,
        "area": group.area.value,
        "level": group.level.value,
        "kind": group.kind.value,
        "count": group.count,
        "exchanges": group.exchanges,
        "message": group.message,
        "causes": list(group.causes),
        "examples": [{"exchange": e.exchange, "frame": e.frame, "excerpt": e.excerpt} for e in group.examples],
        "workloads": [
            {
                "workload": rate.workload.value,
                "exchanges": rate.objected,
                "of": rate.answers,
                "ci95": list(rate.interval),
                "bound": rate.bound,
                "verdict": rate.decision.value,
                "reason": rate.reason,
            }
            for rate in weighed.rates
        ],
    }


def _feature(rate: FeatureRate) -> dict[str, Any]:
    return {
        "feature": rate.feature,
        "sentence": rate.sentence,
        "asked": rate.asked,
        "failed": rate.failed,
        "others": rate.others,
        "others_failed": rate.others_failed,
        "ci95": list(rate.interval),
        "p": rate.p,
        "reasons": dict(rate.reasons),
        "examples": list(rate.examples),
    }


def _traffic(traffic: TrafficView) -> dict[str, Any]:
    return {
        "requests": traffic.requests,
        "attempts": traffic.attempts,
        "retried": traffic.retried,
        "first_try_success": traffic.first_try_success,
        "status": dict(traffic.status),
        "prompt_tokens": traffic.prompt_tokens,
        "cached_tokens": traffic.cached_tokens,
        "completion_tokens": traffic.completion_tokens,
        "cost": traffic.cost,
    }


def _quantiles(q: Quantiles | None) -> dict[str, Any]:
    return {"p50": q.p50 if q else None, "p90": q.p90 if q else None, "p99": q.p99 if q else None, "n": q.n if q else 0}


def _timing(timing: TimingView) -> dict[str, Any]:
    tiers = [{"from": t.low, "to": t.high, **_quantiles(t.ttft_ms)} for t in timing.by_prompt_tokens]
    return {
        "ttft_ms": {**_quantiles(timing.ttft_ms), "by_prompt_tokens": tiers},
        "itl_ms": {
            **_quantiles(timing.itl_ms),
            "by_workload": {name: _quantiles(q) for name, q in timing.itl_by_workload},
        },
        "output_tps": _quantiles(timing.output_tps),
        "e2e_ms": _quantiles(timing.e2e_ms),
    }
