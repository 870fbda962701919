"""Which published means a planned run is held to: those of suites that are asked as the published ones were."""

from __future__ import annotations

from collections.abc import Sequence

from kvv.core import ReferenceValue
from kvv.planning.plan import PlannedSuite
from kvv.profiles.published import Mean, load_published

KIND = "published-mean"
#: a published mean is of the whole set; a smaller draw of it is another question
WHOLE = 0.98


def published_means(profile: str, preset: str, planned: Sequence[PlannedSuite]) -> dict[str, ReferenceValue]:
    """By suite id, for the suites of a run that were asked as the published ones were: KVV's preset, the whole public
    set, its variant.
    """
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
    return (
        dataset is not None
        and not dataset.fixture
        and variant in ("", mean.variant.lower())
        and len(item.cases) >= WHOLE * mean.n
    )
