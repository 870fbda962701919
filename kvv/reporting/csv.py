"""Tables of a run: ``tables`` for pandas, ``render`` as one CSV of the quality rows, ``render_table`` for the
others.
"""

from __future__ import annotations

import csv
import io
from typing import Any

from kvv.rendering.escape import jsonable, plain
from kvv.reporting.json import report
from kvv.storage.view import RunView

TABLES = ("suites", "gates", "checks", "findings")


def tables(view: RunView) -> dict[str, list[dict[str, Any]]]:
    """Flat rows by table name, columns in a fixed order; nested values are left to report.json."""
    found = report(view)
    head = jsonable({"run_id": view.run.run_id, "vendor": view.endpoint.vendor, "model": view.endpoint.model})
    return {name: [{**head, **_flat(row)} for row in found[name]] for name in TABLES}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        match key, value:
            case "ci95", _:
                flat["ci95_low"], flat["ci95_high"] = value or (None, None)
            case "reference", _:
                flat |= {f"reference_{k}": (value or {}).get(k) for k in ("value", "n", "kind", "source")}
            case "look", dict():
                flat |= {f"look_{k}": v for k, v in value.items() if not isinstance(v, list)}
            case "comparability", dict():
                flat |= {f"comparability_{k}": v for k, v in value.items() if not isinstance(v, dict | list)}
            case _, dict() | list():
                continue
            case _:
                flat[key] = value
    return flat


def render(view: RunView) -> str:
    return render_table(view, "suites")


def render_table(view: RunView, name: str) -> str:
    """RFC 4180 with \\n line ends; a text that a spreadsheet would run as a formula gets a leading apostrophe."""
    rows = tables(view)[name]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_text(column) for column in columns])
    writer.writerows([_text(row.get(column)) for column in columns] for row in rows)
    return out.getvalue()


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    line = plain(value, 2_000)
    return f"'{line}" if line.lstrip().startswith(("=", "+", "-", "@")) else line
