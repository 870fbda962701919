"""Failures by feature: a mode that is dead beside others that live is an observation, and no outage. Pure.

Requests that have a feature (streamed, with tools, with images, a field of the body) are compared with requests
without it that were sent about the same time. What the network, the account or the whole endpoint suffers hits both
alike, and tells nothing of a feature.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvv.core import Area, Gate, Level, Outcome
from kvv.protocol.features import IMAGES, INVALID, LONG, STREAMED, TOOLS, WHOLE
from kvv.stats.interval import clopper_pearson
from kvv.stats.strata import Block, stratified_exact_p

#: how the gates' ids begin
FAILURES = "failures/"
#: requests with and without a feature, and failures with it, below which nothing is said of it
LEAST = 6
#: failing stretches, each between answered requests without the feature: fewer may be as many short outages
EPISODES = 3
#: a run's chance to accuse any feature where all fail alike; it is divided by the number of features looked at
ALPHA = 0.001
#: requests that were sent about the same time: the next so many in the order of their starts
BLOCK = 40
#: failures named in a sentence, and exchanges shown
NAMED, SHOWN = 3, 5

_MODES = (STREAMED, WHOLE)
#: the feature that says most is named where two fail alike
_FIRST = (STREAMED, WHOLE, TOOLS, IMAGES, INVALID, LONG)
#: by the first part of a feature's name; what is not here is the endpoint's availability
_AREAS: Mapping[str, Area] = {
    STREAMED: Area.STREAMING,
    TOOLS: Area.TOOLS,
    IMAGES: Area.VISION,
    LONG: Area.LONG_CONTEXT,
    INVALID: Area.ERRORS,
    "tool_choice": Area.TOOL_CHOICE,
    "response_format": Area.RESPONSE_FORMAT,
    "thinking": Area.REASONING,
    "reasoning_effort": Area.REASONING,
}
_WORDS: Mapping[str, tuple[str, str]] = {
    STREAMED: ("streamed requests", "whole ones"),
    WHOLE: ("requests that were not streamed", "streamed ones"),
    TOOLS: ("requests with tools", "others"),
    IMAGES: ("requests with images", "others"),
    LONG: ("long prompts", "shorter ones"),
    INVALID: ("requests that must be refused", "valid ones"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRequest:
    """One request and how it ended: ``failure`` is the reason code of a failure, "" where it was answered as it must
    be (or refused, where it must be). ``started`` is UTC, ISO 8601. ``pace``: every attempt was answered with 429.
    ``slow``: it was given up after a time of our own choice, or cut by what looks like a gateway's time limit.
    ``case`` is its case's id.
    """

    exchange: str
    case: str
    started: str
    features: frozenset[str]
    failure: str = ""
    pace: bool = False
    slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRate:
    """Of ``asked`` requests with the feature ``failed`` failed; of ``others`` without it, sent about the same time,
    ``others_failed``.

    ``interval`` is the exact 95 % interval of the failing share; ``p`` the chance of as many where all fail alike,
    times the features looked at; ``episodes`` counts failing stretches between answered others. ``reasons`` are the
    failures' codes, the most frequent first; ``cases`` those whose requests failed.
    """

    feature: str
    asked: int
    failed: int
    others: int
    others_failed: int
    interval: tuple[float, float]
    p: float
    episodes: int
    reasons: tuple[tuple[str, int], ...] = ()
    examples: tuple[str, ...] = ()
    cases: frozenset[str] = frozenset()

    @property
    def sentence(self) -> str:
        """``0 of 412 streamed requests were answered, 398 of 398 whole ones were (http-500 x412)``."""
        mode, _, rest = self.feature.partition("+")
        with_it, without = _WORDS.get(self.feature, (f"requests with {self.feature}", "others"))
        if rest:
            with_it, without = f"{_WORDS[mode][0]} with {'a long prompt' if rest == LONG else rest}", "others"
        verb = "got an answer" if self.feature == INVALID else "were answered"
        named = ", ".join(f"{reason} x{count}" for reason, count in self.reasons[:NAMED])
        return (
            f"{self.asked - self.failed} of {self.asked} {with_it} {verb},"
            f" {self.others - self.others_failed} of {self.others} {without} were ({named})"
        )


def failing_features(requests: Iterable[FeatureRequest]) -> tuple[FeatureRate, ...]:
    """The features that fail more often than what was asked beside them, beyond chance; the clearest first.

    A feature is compared in blocks of requests sent about the same time and of like size, with an exact test, and needs
    separate failing stretches beside answered controls, so that no single outage accuses it. Once one is found its
    requests are left out: what comes with it is not accused for it.
    """
    left = sorted(requests, key=_order)
    # every feature that could be accused counts, not those alone that failed often: they were picked by their failures
    many = sum(LEAST <= asked <= len(left) - LEAST for asked in _counted(left).values())
    found: list[FeatureRate] = []
    while True:
        failed = _counted(one for one in left if one.failure)
        rates = (_rate(left, feature, many) for feature in sorted(failed) if failed[feature] >= LEAST)
        shown = [rate for rate in rates if rate is not None]
        if not shown:
            return tuple(found)
        found.append(min(shown, key=lambda rate: (rate.p, _rank(rate.feature), -rate.asked, rate.feature)))
        left = _split(left, found[-1].feature)[1]


def _rank(feature: str) -> int:
    return _FIRST.index(feature) if feature in _FIRST else len(_FIRST)


def _split(requests: Iterable[FeatureRequest], feature: str) -> tuple[list[FeatureRequest], list[FeatureRequest]]:
    """With the feature, and without it."""
    parts = frozenset(feature.split("+"))
    own: list[FeatureRequest] = []
    others: list[FeatureRequest] = []
    for one in requests:
        (own if parts <= one.features else others).append(one)
    return own, others


def _counted(requests: Iterable[FeatureRequest]) -> Counter[str]:
    """How many requests have each feature; each alone, and under one stream mode."""
    counts: Counter[str] = Counter()
    for one in requests:
        counts.update(one.features)
        rest = [name for name in one.features if name not in _MODES]
        counts.update(f"{mode}+{name}" for mode in _MODES if mode in one.features for name in rest)
    return counts


def _rate(requests: Sequence[FeatureRequest], feature: str, many: int) -> FeatureRate | None:
    """None where chance, an outage, the endpoint's pace or our own patience explains it as well."""
    own, others = _comparable(*_split(requests, feature), feature)
    failed, others_failed = sum(bool(one.failure) for one in own), sum(bool(one.failure) for one in others)
    if failed < LEAST or len(others) < LEAST or failed * len(others) <= others_failed * len(own):
        return None
    strata = _strata(own, others, feature)
    episodes = sum(map(_episodes, strata))
    if episodes < EPISODES:
        return None
    p = many * stratified_exact_p(block for stratum in strata for block in _blocks(stratum))
    if p > ALPHA:
        return None
    lost = [one for one in own if one.failure]
    return FeatureRate(
        feature=feature,
        asked=len(own),
        failed=failed,
        others=len(others),
        others_failed=others_failed,
        interval=clopper_pearson(failed, len(own)).pair,
        p=p,
        episodes=episodes,
        reasons=tuple(Counter(one.failure for one in lost).most_common()),
        examples=tuple(one.exchange for one in lost[:SHOWN]),
        cases=frozenset(one.case for one in lost),
    )


def _comparable(
    own: Sequence[FeatureRequest], others: Sequence[FeatureRequest], feature: str
) -> tuple[list[FeatureRequest], list[FeatureRequest]]:
    """What may tell of this feature.

    A request that must be refused says nothing of its fields, since it is one of them that is wrong. A 429 is the
    endpoint's pace and a time-out may be our own impatience, unless no request with the feature fared better; and
    both are never a matter of length, which a limit of tokens a minute is.
    """
    if feature not in (*_MODES, INVALID):
        own, others = ([one for one in group if INVALID not in one.features] for group in (own, others))
    sized = LONG in feature
    # a request that must be refused may be refused by what comes before a dead mode
    valid = [one for one in own if feature == INVALID or INVALID not in one.features]
    only_pace = not sized and all(one.pace for one in valid)
    dead = not sized and all(one.failure for one in valid)
    kept = [one for one in own if (not one.pace or only_pace) and (not one.slow or dead)]
    return kept, list(others)


#: a request, and whether it has the feature
_Marked = tuple[FeatureRequest, bool]


def _strata(own: Iterable[FeatureRequest], others: Iterable[FeatureRequest], feature: str) -> list[list[_Marked]]:
    """Requests of like size and, where it is not the feature itself, alike valid or not, each in the order of
    starts."""
    apart = [name for name in (LONG, INVALID) if name not in feature.split("+")]
    strata: dict[tuple[bool, ...], list[_Marked]] = {}
    for group, has in ((own, True), (others, False)):
        for one in group:
            strata.setdefault(tuple(name in one.features for name in apart), []).append((one, has))
    return [sorted(stratum, key=lambda marked: _order(marked[0])) for stratum in strata.values()]


def _order(request: FeatureRequest) -> tuple[str, str]:
    return request.started, request.exchange


def _blocks(stratum: Sequence[_Marked]) -> Iterator[Block]:
    """Failures with the feature that follow one another with nothing between are one: a short outage may make several,
    where nearly all that is asked at that time has the feature.
    """
    for first in range(0, len(stratum), BLOCK):
        raw = stratum[first : first + BLOCK]
        block = [
            (one, has)
            for at, (one, has) in enumerate(raw)
            if not (has and one.failure and at and raw[at - 1][1] and raw[at - 1][0].failure)
        ]
        yield Block(
            n=len(block),
            hits=sum(bool(one.failure) for one, _ in block),
            group=sum(has for _, has in block),
            group_hits=sum(has and bool(one.failure) for one, has in block),
        )


def _episodes(stratum: Iterable[_Marked]) -> int:
    """Stretches of failures with the feature that begin after an answered request without it, end before another, and
    hold no failure without it.
    """
    alive = failing = False
    episodes = 0
    for one, has in stratum:
        if has:
            failing = failing or bool(one.failure)
        elif one.failure:
            alive = failing = False
        else:
            episodes += alive and failing
            alive, failing = True, False
    return episodes


def feature_gates(rates: Sequence[FeatureRate], share: float) -> list[Gate]:
    """A gate for each: FAIL where the exact interval of the failing share lies above ``share``, else shown only."""
    return [_gate(rate, share) for rate in rates]


def _area(feature: str) -> Area:
    """Of a field under one stream mode, the field's."""
    name = feature.rpartition("+")[2].partition("=")[0].partition(".")[0]
    return _AREAS.get(name, Area.AVAILABILITY)


def _gate(rate: FeatureRate, share: float) -> Gate:
    low, high = rate.interval
    fails = low > share
    code = "fails-by-feature" if fails else "not-gated: fails-rarely"
    limit = "" if fails else f"; the policy bears {100 * share:g} %"
    chance = "below 1 in a million" if rate.p < 1e-6 else f"at most {rate.p:.1g}"
    return Gate(
        id=f"{FAILURES}{rate.feature}",
        area=_area(rate.feature),
        level=Level.MUST,
        decision=Outcome.FAIL if fails else Outcome.SKIP,
        reason=(
            f"{code}: {rate.sentence}; {100 * low:.1f} to {100 * high:.1f} % fail (95 % interval), by chance"
            f" {chance}{limit}"
        ),
        method="failures with and without the feature, exact test over blocks of time",
        margin=share,
    )
