"""Select, order, estimate: what a run will ask, before anything is sent. Pure."""

from __future__ import annotations

import fnmatch
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvv.cases.suite import Context, Settings, Suite, SuiteKind
from kvv.core import Case, Fragment, Picture
from kvv.core.lazy import numpy as np
from kvv.planning.config import RunConfig
from kvv.profiles.profile import Prices, Profile, Sampling

#: characters per token, for estimates only
CHARS_PER_TOKEN = 3.5
#: a picture sent as a data URL, for estimates only
PICTURE_TOKENS = 300
#: what a contract request uses, prompt and completion, for estimates only
CONTRACT_COMPLETION_TOKENS = 64

#: what a judge's call uses beside the answer it is shown, for estimates only
JUDGE_PROMPT_TOKENS, JUDGE_COMPLETION_TOKENS = 400, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSuite:
    """A suite with its context and the cases that will be asked, ``samples[case.id]`` times each.

    ``cached_tokens`` are those of the prompt tokens that a perfect prefix cache would hold; ``judge_calls`` go to
    another endpoint.
    """

    suite: Suite
    context: Context
    cases: Sequence[Case]
    samples: Mapping[str, int]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    judge_calls: int = 0

    @property
    def n(self) -> int:
        return sum(self.samples.values())

    @property
    def requests(self) -> int:
        """What is asked when nothing needs a second try: a case of several requests says how many
        (``inputs["requests"]``).
        """
        return sum(int(case.inputs.get("requests", 1)) * self.samples[case.id] for case in self.cases)

    @property
    def judge_tokens(self) -> tuple[int, int]:
        """Prompt and completion tokens: each call shows the judge an answer, a rubric item and the instruction."""
        answer = self.context.settings.expect_completion_tokens
        return self.judge_calls * (answer + JUDGE_PROMPT_TOKENS), self.judge_calls * JUDGE_COMPLETION_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    suite: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    suites: Sequence[PlannedSuite]
    skipped: Sequence[Skipped]
    prices: Prices | None
    judge_prices: Prices | None = None

    @property
    def requests(self) -> int:
        return sum(planned.requests for planned in self.suites)

    @property
    def prompt_tokens(self) -> int:
        return sum(planned.prompt_tokens for planned in self.suites)

    @property
    def completion_tokens(self) -> int:
        return sum(planned.completion_tokens for planned in self.suites)

    @property
    def cached_tokens(self) -> int:
        return sum(planned.cached_tokens for planned in self.suites)

    @property
    def judge_calls(self) -> int:
        return sum(planned.judge_calls for planned in self.suites)

    @property
    def cost(self) -> float | None:
        """Dollars without any prefix caching and without the judge; None where no price is known."""
        return None if self.prices is None else cost_of(self.prices, self.prompt_tokens, self.completion_tokens)

    @property
    def judge_cost(self) -> float | None:
        """Dollars for the judge's calls; None where its price is not known."""
        if self.judge_prices is None:
            return 0.0 if not self.judge_calls else None
        return sum(cost_of(self.judge_prices, *planned.judge_tokens) for planned in self.suites)

    @property
    def cost_cached(self) -> float | None:
        """Dollars if every shared prefix after its first request is served from a cache."""
        return (
            None
            if self.prices is None
            else cost_of(self.prices, self.prompt_tokens, self.completion_tokens, self.cached_tokens)
        )


def cost_of(prices: Prices, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
    """Dollars; ``cached_tokens`` of the prompt tokens are billed at the cached price."""
    paid = (prompt_tokens - cached_tokens) * prices.input + cached_tokens * prices.cached
    return (paid + completion_tokens * prices.output) / 1_000_000


def tier_of(config: RunConfig) -> str:
    """Named endpoints are asked little unless told otherwise; our own endpoint answers the whole fixtures."""
    return config.tier or ("smoke" if config.base_url else "full")


def settings_for(config: RunConfig, profile: Profile, suite: Suite) -> Settings:
    """Profile, preset, tier and flags laid over each other for one suite."""
    tier = tier_of(config)
    sampling = kvv_sampling(suite, profile.id) if config.preset == "kvv" else None
    sampling = sampling or profile.sampling_for(suite.id)
    thinking = {"on": True, "off": False, None: None}[config.thinking]
    effort = config.effort[0] if config.effort else None
    if suite.kind is not SuiteKind.BENCHMARK:
        return Settings(thinking=thinking, think_mode=config.think_mode, effort=effort, extra_body=_extra(config))
    if thinking is None and profile.thinking.supported:
        thinking = profile.thinking.default
    temperature = sampling.temperature
    if thinking is False and sampling.temperature_off is not None:
        temperature = sampling.temperature_off
    return Settings(
        temperature=config.temperature if config.temperature is not None else temperature,
        top_p=config.top_p if config.top_p is not None else sampling.top_p,
        max_tokens=config.max_tokens.get(suite.id, config.max_tokens.get("", sampling.max_tokens)),
        stream=sampling.stream if config.stream is None else config.stream,
        samples=config.samples or sampling.samples.get(tier, 1),
        thinking=thinking,
        think_mode=config.think_mode,
        effort=effort or profile.thinking.default_effort,
        variant=variant_for(config, suite.id),
        expect_completion_tokens=sampling.expect_completion_tokens,
        extra_body=_extra(config),
    )


def kvv_sampling(suite: Suite, profile: str) -> Sampling | None:
    """KVV's own parameters for a suite and a model; None for a suite that KVV does not have."""
    sampling, own = suite.kvv_sampling, suite.kvv_max_tokens.get(profile)
    return sampling if sampling is None or own is None else sampling.model_copy(update={"max_tokens": own})


def variant_for(config: RunConfig, suite: str) -> str:
    """``--variant V`` is for every suite of the run, ``--variant SUITE=V[,SUITE=V]`` for those it names."""
    text = config.variant or ""
    if "=" not in text:
        return text
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs}.get(suite, "")


def _extra(config: RunConfig) -> dict[str, Any]:
    """``--extra-body``, and ``--provider`` in the form OpenRouter-style gateways read."""
    provider = {"provider": {"order": [config.provider], "allow_fallbacks": False}} if config.provider else {}
    return {**provider, **config.extra_body}


def question_limit(config: RunConfig, profile: Profile, suite: Suite) -> int | None:
    """How many questions at most: ``--limit``; else the tier's, unless the user named the data, which is then asked
    whole.
    """
    if config.limit is not None:
        return config.limit
    if suite.id in config.data or not config.base_url or config.preset == "kvv":
        return None
    return profile.sampling_for(suite.id).limit.get(tier_of(config))


def plan_suite(
    suite: Suite,
    context: Context,
    *,
    limit: int | None,
    globs: Sequence[str],
    generator: np.random.Generator,
    gentle: bool,
) -> PlannedSuite:
    """The suite's cases, filtered by ``--case`` globs and cut by a seeded stratified draw, never by order."""
    cases = [case for case in suite.cases(context) if _wanted(case, globs) and not (gentle and case.risk)]
    if limit is not None and len(cases) > limit and suite.kind is SuiteKind.BENCHMARK:
        cases = permute(cases, generator)[:limit]
    return _planned(suite, context, cases)


def only(planned: PlannedSuite, cases: Sequence[Case]) -> PlannedSuite:
    """The same suite with fewer cases, estimated anew."""
    return _planned(planned.suite, planned.context, cases)


def _planned(suite: Suite, context: Context, cases: Sequence[Case]) -> PlannedSuite:
    samples = {case.id: suite.samples(case, context) for case in cases}
    prompt = sum(_prompt_tokens(suite, case) * samples[case.id] for case in cases)
    per_answer = (
        context.settings.expect_completion_tokens if suite.kind is SuiteKind.BENCHMARK else CONTRACT_COMPLETION_TOKENS
    )
    answers = (
        sum(samples.values())
        if suite.kind is SuiteKind.BENCHMARK
        else sum(int(case.inputs.get("requests", 1)) for case in cases)
    )
    completion = answers * per_answer
    return PlannedSuite(
        suite=suite,
        context=context,
        cases=cases,
        samples=samples,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=_cached_tokens(cases, samples),
        judge_calls=sum(int(case.inputs.get("judge_calls", 0)) * samples[case.id] for case in cases),
    )


def _cached_tokens(cases: Sequence[Case], samples: Mapping[str, int]) -> int:
    """Of each block's requests all but the first find the shared part in a perfect cache."""
    shared: dict[str, tuple[int, int]] = {}
    for case in cases:
        block = case.inputs.get("block")
        if block is not None:
            tokens, requests = shared.get(block, (0, 0))
            shared[block] = max(tokens, int(case.inputs["tokens"]["shared"])), requests + samples[case.id]
    return sum(tokens * (requests - 1) for tokens, requests in shared.values() if requests)


def _wanted(case: Case, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatch.fnmatchcase(case.id, glob) for glob in globs)


def _prompt_tokens(suite: Suite, case: Case) -> int:
    """What the suite itself counted or estimated (``inputs["tokens"]``), else by the characters it will send."""
    if "tokens" in case.inputs:
        return int(case.inputs["tokens"]["prompt"])
    return int(sum(_characters(body) for body in suite.bodies(case) if body is not None) / CHARS_PER_TOKEN)


def _characters(value: Any) -> int:
    if isinstance(value, Fragment):
        return len(value.data)
    if isinstance(value, Picture):
        return int(value.tokens * CHARS_PER_TOKEN)
    if isinstance(value, str):
        return int(PICTURE_TOKENS * CHARS_PER_TOKEN) if value.startswith("data:image/") else len(value)
    if isinstance(value, Mapping):
        return sum(len(key) + _characters(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return sum(_characters(item) for item in value)
    return len(json.dumps(value))


def permute(cases: Sequence[Case], generator: np.random.Generator) -> list[Case]:
    """A seeded permutation in which every prefix holds each stratum (``inputs["stratum"]``) in proportion.

    Cases of one ``inputs["block"]`` share the beginning of their prompts and stay together: whole blocks are permuted,
    and the cases in them.

    Items of a stratum of size m get the keys (i + u) / m, in shuffled order: an unbiased, stratified order, so
    that a run cut short is a fair sample.
    """
    if any("block" in case.inputs for case in cases):
        return _permuted_blocks(cases, generator)
    strata: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        strata[str(case.inputs.get("stratum", ""))].append(case)
    keyed: list[tuple[float, int, Case]] = []
    for name in sorted(strata):
        members = strata[name]
        order = generator.permutation(len(members))
        offset = float(generator.random())
        keyed.extend(((place + offset) / len(members), int(index), members[index]) for place, index in enumerate(order))
    return [case for _, _, case in sorted(keyed, key=lambda item: (item[0], item[2].id))]


def _permuted_blocks(cases: Sequence[Case], generator: np.random.Generator) -> list[Case]:
    blocks: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        blocks[str(case.inputs.get("block", case.id))].append(case)
    names = sorted(blocks)
    order = [blocks[names[index]] for index in generator.permutation(len(names))]
    return [block[index] for block in order for index in generator.permutation(len(block))]


def longest_first(planned: Sequence[PlannedSuite]) -> list[PlannedSuite]:
    """Suites with the longest answers first: none of them is alone at the end of the run."""
    return sorted(planned, key=lambda item: -item.context.settings.expect_completion_tokens)


def in_order(
    planned: Sequence[PlannedSuite], generator_for: Callable[[str], np.random.Generator]
) -> Iterator[tuple[PlannedSuite, Case]]:
    """Every sample of every case: suites with the longest answers first, sample rounds within a suite, risky cases
    last.

    Lazy: a hundred thousand samples are never held at once.
    """
    for item in longest_first(planned):
        if item.suite.kind is SuiteKind.BENCHMARK:
            yield from ((item, case) for case in _rounds(item, generator_for(item.suite.id)))
        else:
            yield from ((item, case) for case in sorted(item.cases, key=lambda case: case.risk))


def interleaved(
    planned: Sequence[PlannedSuite], generator_for: Callable[[str], np.random.Generator]
) -> Iterator[tuple[PlannedSuite, Case]]:
    """The same samples, suites mixed by chance: no run of alike requests gives a benchmark away. Each suite keeps its
    order, a block stays whole, and risky cases still come last.
    """
    generator = generator_for("interleaved")
    safe = [replace(item, cases=[case for case in item.cases if not case.risk]) for item in planned]
    lanes = [in_order([item], generator_for) for item in safe]
    waiting = [next(lane, None) for lane in lanes]
    left = [float(sum(item.samples.get(case.id, 1) for case in item.cases)) for item in safe]
    while any(waiting):
        weights = np.array([count if one else 0.0 for count, one in zip(left, waiting, strict=True)])
        chosen = int(generator.choice(len(lanes), p=weights / weights.sum()))
        while (found := waiting[chosen]) is not None:
            yield planned[chosen], found[1]
            waiting[chosen], left[chosen] = next(lanes[chosen], None), max(1.0, left[chosen] - 1)
            block, following = found[1].inputs.get("block"), waiting[chosen]
            if block is None or following is None or following[1].inputs.get("block") != block:
                break
    for item, case in in_order(planned, generator_for):
        if case.risk:
            yield item, case


def _rounds(item: PlannedSuite, generator: np.random.Generator) -> Iterator[Case]:
    for number in range(max(item.samples.values(), default=0)):
        for case in permute([case for case in item.cases if item.samples[case.id] > number], generator):
            yield replace(case, sample=number)
