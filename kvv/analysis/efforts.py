"""What an effort brings and what it costs: a row for each effort and benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvv.rendering.document import DocumentTable, Estimate, Section, Unit
from kvv.storage.store.rows import SampleTraffic


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortRow:
    """``score`` is the primary metric with its 95 % interval. Tokens, dollars and seconds are means of a sample with
    all its attempts; None where nothing was counted or no price is known.
    """

    effort: str
    suite: str
    metric: str
    score: float | None
    interval: tuple[float, float] | None
    n: int
    n_planned: int
    truncated: int
    completion_tokens: float | None
    cost_usd: float | None
    seconds: float | None


def traffic_means(samples: Sequence[SampleTraffic]) -> dict[str, float | None]:
    """The three means of ``EffortRow``; a dollar that is not known for one sample is not known for their mean."""
    if not samples:
        return {"completion_tokens": None, "cost_usd": None, "seconds": None}
    costs = [sample.cost for sample in samples if sample.cost is not None]
    return {
        "completion_tokens": sum(sample.completion_tokens for sample in samples) / len(samples),
        "cost_usd": sum(costs) / len(costs) if len(costs) == len(samples) else None,
        "seconds": sum(sample.total_ms for sample in samples) / len(samples) / 1000,
    }


def section(rows: Sequence[EffortRow]) -> Section:
    columns = ("effort", "suite", "metric", "score", "n", "cut at the limit", "tokens", "USD", "seconds")
    table = DocumentTable(
        name="efforts",
        columns=columns,
        rows=tuple(
            (
                row.effort,
                row.suite,
                row.metric,
                _score(row),
                f"{row.n}/{row.n_planned}",
                row.truncated,
                None if row.completion_tokens is None else round(row.completion_tokens),
                None if row.cost_usd is None else round(row.cost_usd, 6),
                None if row.seconds is None else round(row.seconds, 2),
            )
            for row in rows
        ),
    )
    note = "Tokens (completion), dollars and seconds are means of one sample; all efforts were asked side by side."
    return Section(title="Efforts", notes=(note,), tables=(table,))


def _score(row: EffortRow) -> Estimate:
    low, high = row.interval or (None, None)
    return Estimate(value=row.score, low=low, high=high, n=row.n, unit=Unit.SHARE)


def as_data(rows: Sequence[EffortRow]) -> list[Mapping[str, Any]]:
    return [asdict(row) for row in rows]
