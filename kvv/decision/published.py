"""Means that a model's owner publishes: the weaker kind of reference (statistics.md section 1). They can show a loss, never prove parity."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from kvv.core import ReferenceValue
from kvv.planning.plan import PlannedSuite

KIND = "published-mean"
#: a published mean is of the whole set; a smaller draw of it is another question
WHOLE = 0.98


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Mean(_Table):
    """``value`` from 0 to 1 over ``n`` questions; ``variant`` of the data, "" for the suite's default one."""

    suite: str
    value: Annotated[float, Field(ge=0, le=1)]
    n: Annotated[int, Field(gt=0)]
    variant: str = ""


class Row(_Table):
    """A vendor's row of the public leaderboard; ``values`` from 0 to 1 by the leaderboard's own column."""

    vendor: str
    values: dict[Literal["ocrbench", "mmmu_pro", "beam", "deepswe"], Annotated[float, Field(ge=0, le=1)]]


class Published(_Table):
    """``mean`` are the owner's own, which runs are held to; ``row`` are the leaderboard's, which are shown beside measured ones."""

    source: str
    leaderboard: str
    model: str
    mean: tuple[Mean, ...]
    row: tuple[Row, ...] = ()


def load_published(profile: str) -> Published | None:
    """What ships for a profile, None where nothing does."""
    entry = files("kvv.fixtures").joinpath("references", profile, "published.toml")
    return Published.model_validate(tomllib.loads(entry.read_text("utf-8"))) if entry.is_file() else None


def published_means(profile: str, preset: str, planned: Sequence[PlannedSuite]) -> dict[str, ReferenceValue]:
    """By suite id, for the suites of a run that were asked as the published ones were: KVV's preset, the whole public set, its variant."""
    known = load_published(profile) if preset == "kvv" else None
    if known is None:
        return {}
    means = {mean.suite: mean for mean in known.mean}
    return {
        item.suite.id: ReferenceValue(value=mean.value, n=mean.n, kind=KIND, source=known.source)
        for item in planned
        if (mean := means.get(item.suite.id)) is not None and _asked_alike(item, mean)
    }


def _asked_alike(item: PlannedSuite, mean: Mean) -> bool:
    dataset = item.context.dataset
    variant = item.context.settings.variant.lower()
    return dataset is not None and not dataset.fixture and variant in ("", mean.variant.lower()) and len(item.cases) >= WHOLE * mean.n
