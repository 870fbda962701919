"""Which published means a planned run is held to: those of suites that are asked as the published ones were; of the
others what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kvv.cases.suite import Suite
from kvv.core import ReferenceValue
from kvv.planning.plan import PlannedSuite, kvv_sampling
from kvv.profiles.published import Mean, PublishedMeans, load_published

KIND = "published-mean"
#: the preset by which published values were asked
PRESET = "kvv"
#: the judge's prompts whose official words a published mean needs
OFFICIAL_PROMPTS = ("item", "order")
#: a published mean is of the whole set; a smaller draw of it is another question
WHOLE = 0.98
#: what a data set's revision says of content that nobody compared with the public one, and of content that was
LOCAL, COMPARED = "local ", "; questions as in "
#: what a data set's revision says of other content
OTHER = "; questions other than "


def published_means(profile: str, preset: str, planned: Sequence[PlannedSuite]) -> dict[str, ReferenceValue]:
    """By suite id, for the suites of a run that were asked as the published ones were: KVV's preset, the whole public
    set, its variant, sampling, limits, effort and judge.
    """
    return {
        suite: ReferenceValue(value=mean.value, n=mean.n, kind=KIND, source=known.source)
        for suite, (known, mean, unlike) in _compared(profile, preset, planned).items()
        if not unlike
    }


def published_otherwise(profile: str, preset: str, planned: Sequence[PlannedSuite]) -> dict[str, str]:
    """By suite id, for a run with the preset: what keeps the published mean from being a measure of it."""
    return {
        suite: f"the published {mean.value:g} was asked otherwise: {', '.join(unlike)}"
        for suite, (_, mean, unlike) in _compared(profile, preset, planned).items()
        if unlike
    }


def _compared(
    profile: str, preset: str, planned: Sequence[PlannedSuite]
) -> dict[str, tuple[PublishedMeans, Mean, list[str]]]:
    known = load_published(profile) if preset == PRESET else None
    if known is None:
        return {}
    means = {mean.suite: mean for mean in known.mean}
    return {
        item.suite.id: (known, means[item.suite.id], _unlike(profile, item, means[item.suite.id]))
        for item in planned
        if item.suite.id in means
    }


def _unlike(profile: str, item: PlannedSuite, mean: Mean) -> list[str]:
    context = item.context
    dataset = (
        None if context.dataset is None else {"fixture": context.dataset.fixture, "revision": context.dataset.revision}
    )
    judge = "" if context.judge is None else context.judge.model
    prompts = None if context.judge_prompts is None else context.judge_prompts.given
    found = differences(
        item.suite, profile, asdict(context.settings), dataset, judge=judge, agent=context.agent, prompts=prompts
    )
    if context.settings.variant.lower() not in ("", mean.variant.lower()):
        found.append(f"variant {context.settings.variant}, not {mean.variant or 'the default'}")
    if len(item.cases) < WHOLE * mean.n:
        found.append(f"{len(item.cases)} of {mean.n} questions")
    return found


def differences(
    suite: Suite,
    profile: str,
    settings: Mapping[str, Any],
    dataset: Mapping[str, Any] | None,
    *,
    judge: str = "",
    agent: str = "",
    prompts: Sequence[str] | None = None,
) -> list[str]:
    """In what a suite was asked otherwise than the published values of this profile were: a few words each. Number of
    questions and variant are the caller's; where nothing is published for the profile, data and sampling alone count.
    """
    known, wanted = load_published(profile), kvv_sampling(suite, profile)
    found = []
    if wanted is not None:
        thinking_off = settings.get("thinking") is False and wanted.temperature_off is not None
        expected = {
            "temperature": wanted.temperature_off if thinking_off else wanted.temperature,
            "top_p": wanted.top_p,
            "max_tokens": wanted.max_tokens,
        }
        found += [
            f"{name} {settings.get(name)}, not {value}"
            for name, value in expected.items()
            if value is not None and settings.get(name) != value
        ]
    extra = sorted(name for name in settings.get("extra_body") or {} if name != "provider")
    found += [f"extra_body {', '.join(extra)[:80]}"] if extra else []
    if known is not None and known.effort:
        if settings.get("thinking") is False:
            found.append("thinking off")
        elif settings.get("effort") != known.effort:
            found.append(f"effort {settings.get('effort') or 'the default'}, not {known.effort}")
    found += _data(dataset)
    if known is not None and "judge" in suite.needs and (not known.judge or judge != known.judge):
        found.append(f"judge {judge or 'unknown'}, not {known.judge or 'named by the publisher'}")
    if known is not None and "judge" in suite.needs:
        found += [
            f"the judge's prompt {name!r} in kvv's words, not the official ones (--judge-prompts)"
            for name in OFFICIAL_PROMPTS
            if name not in (prompts or ())
        ]
    if known is not None and "sandbox" in suite.needs and (not known.agent or known.agent not in agent):
        found.append(f"agent {agent or 'our own'}, not {known.agent or 'named by the publisher'}")
    return found


def _data(dataset: Mapping[str, Any] | None) -> list[str]:
    revision = str((dataset or {}).get("revision") or "")
    if dataset is None or dataset.get("fixture"):
        return ["fixture data"] if dataset else ["no data set"]
    if OTHER in revision or (revision.startswith(LOCAL) and COMPARED not in revision):
        return [f"data {revision.split(';')[0][:40]}, not known to be the public set"]
    return []
