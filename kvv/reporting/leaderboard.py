"""leaderboard.json: the run as one row of a leaderboard, with what makes it comparable."""

from __future__ import annotations

import json
from typing import Any

from kvv.reporting.json import report
from kvv.storage.view import RunView


def render(view: RunView) -> str:
    return json.dumps(row(view), ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def row(view: RunView) -> dict[str, Any]:
    """Primary metrics only, as shares; ``kvv_preset`` false marks a row as not comparable with KVV's leaderboard."""
    found = report(view)
    preset = view.run.preset
    return {
        "leaderboard_version": 1,
        "model": found["endpoint"]["model"],
        "vendor": found["endpoint"]["vendor"],
        "base_url": found["endpoint"]["base_url"],
        "upstreams": found["endpoint"]["upstreams"],
        "date": found["finished"][:10],
        "run_id": found["run_id"],
        "kvv_version": found["kvv_version"],
        "verdict": found["verdict"],
        "coverage": found["coverage"],
        "partial": found["partial"],
        "preset": preset or None,
        "kvv_preset": preset == "kvv",
        "suites": {
            entry["id"]: {
                "metric": entry["metric"],
                "value": entry["value"],
                "kvv_value": entry["kvv_value"],
                "ci95": entry["ci95"],
                "n": entry["n_concluded"],
                "n_planned": entry["n_planned"],
                "n_truncated": entry["n_truncated"],
                **({"look": entry["look"]} if "look" in entry else {}),
                "worst_case": entry["worst_case"],
                "best_case": entry["best_case"],
                "preset": entry["comparability"]["preset"],
                "fixture": entry["id"] in {s.id for s in view.suites if s.fixture},
                "comparability": entry["comparability"],
            }
            for entry in found["suites"]
            if entry["primary"]
        },
        "latency": {
            "ttft_ms_p50": found["timing"]["ttft_ms"]["p50"],
            "output_tps_p50": found["timing"]["output_tps"]["p50"],
        },
        "cost": found["traffic"]["cost"],
        "first_try_success": found["traffic"]["first_try_success"],
    }
