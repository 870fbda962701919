"""From a RunConfig to everything a run needs: profile, suites, data, contexts, plan. Nothing is sent here."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from functools import cache, reduce
from glob import escape
from importlib.resources import as_file, files
from pathlib import Path

from kvv.cases.suite import (
    Context,
    Judge,
    ReferenceRun,
    Settings,
    Suite,
    SuiteError,
    SuiteKind,
    is_inner,
    load_suite,
    suite_ids,
)
from kvv.core import Dataset, Request
from kvv.core.lazy import numpy as np
from kvv.data import DataError
from kvv.data import load as load_data
from kvv.data.merges import read_merges, read_tokenizer_json
from kvv.decision.inputs import OfficialRates
from kvv.planning.config import COST_GUARD_USD, TOKEN_GUARD, ConfigError, RunConfig, read_key
from kvv.planning.interim_plan import check_early_stop
from kvv.planning.judge_prompts import read_judge_prompts
from kvv.planning.plan import (
    Plan,
    PlannedSuite,
    Skipped,
    plan_suite,
    question_limit,
    settings_for,
    tier_of,
    variant_for,
)
from kvv.planning.policy_choice import choose_policy
from kvv.planning.run_plan import RunPlan
from kvv.profiles.calibration import is_rule
from kvv.profiles.policy import Policy, Required, Waiver
from kvv.profiles.profile import Prices, Profile, ProfileError, another_model, find_profile, load_profile, pick_profile
from kvv.profiles.token_counts import Bpe, HubTokenizer, Tokenizer
from kvv.protocol.classify import LIVENESS
from kvv.sandbox import SandboxError, Workspace, choose
from kvv.sandbox.adapters.chosen import agent_of, check_grader, grader_of
from kvv.storage.references import (
    Header,
    ReferenceError,
    ReferenceFile,
    asked_otherwise,
    check_overlap,
    programs,
    read_reference,
)

#: what the in-process reference endpoint serves
FIXTURE_MODEL = "kimi-k3"
#: KVV's defaults for the judge of BEAM
JUDGE_TEMPERATURE, JUDGE_MAX_TOKENS = 0.3, 16_384
#: how anybody may begin: a control request whose wording does not matter, in a discreet run
SMALL_TALK = (
    "Good morning! How are you?",
    "What is the capital of Portugal?",
    "Give me a synonym of quick.",
    "How many days does a leap year have?",
    "Say something nice about tea.",
    "Translate 'thank you' into Italian.",
)
#: the value of --data that asks for the shipped fixtures
FIXTURE = "fixture"
#: the policy that judges a tier, where none is named
TIER_POLICIES = {"smoke": "smoke", "nightly": "nightly", "full": "release"}


#: reads a data set, as kvv.data.load does
Loader = Callable[..., Dataset]


def prepare(config: RunConfig, *, contract_only: bool = False, load: Loader | None = None) -> RunPlan:
    """Everything up to the plan. Raises ConfigError with one line. ``load``: endpoints that are asked the same share
    what was read.
    """
    in_process = config.base_url is None
    if config.as_reference and (
        Path(config.as_reference).is_dir() or not Path(config.as_reference).absolute().parent.is_dir()
    ):
        raise ConfigError(f"--as-reference: {config.as_reference} is no file that can be written")
    model = config.model or (FIXTURE_MODEL if in_process else None)
    if model is None:
        raise ConfigError("--model: is needed beside --base-url (or KVV_MODEL)")
    profile, reason = _profile(config, model)
    policy = _policy(config, contract_only=contract_only).with_waivers(_official_failures(profile))
    references, doubles = _reference_files(config)
    plan, skipped = [], []
    sandbox = ""
    for suite, named in _selected(config, profile, contract_only=contract_only):
        missing = _missing_need(suite, config) or _other_tier(suite, config, profile, named=named)
        dataset = (
            None if missing else _dataset(suite, config, profile, load or load_data, named=named, in_process=in_process)
        )
        if isinstance(dataset, Skipped):
            skipped.append(dataset)
        elif missing:
            skipped.append(Skipped(suite=suite.id, reason=missing))
        else:
            planned = _planned(suite, config, profile, model, dataset, references, recorded=False)
            if "sandbox" in suite.needs and planned.cases:
                check_grader(config.grader, planned.cases)
                sandbox, lacking = _sandbox(config, planned, named=named)
                if lacking:
                    skipped.append(Skipped(suite=suite.id, reason=lacking))
                    continue
            plan.append(planned)
    if config.case:
        # suites without a chosen case were not asked for
        plan = [planned for planned in plan if planned.cases]
        if not plan:
            raise ConfigError(f"--case: no case matches {' '.join(config.case)!r}")
    whole = Plan(suites=plan, skipped=skipped, prices=_prices(config, profile), judge_prices=_judge_prices(config))
    if config.early_stop and not contract_only:
        check_early_stop(config, policy, whole)
    return RunPlan(
        config=config,
        model=model,
        profile=profile,
        profile_reason=reason,
        policy=policy,
        plan=whole,
        in_process=in_process,
        contract_only=contract_only,
        sandbox=sandbox,
        counted_once=doubles,
        official=reduce(OfficialRates.plus, (found.header.rules for found in references.values()), OfficialRates()),
    )


def prepare_suite(config: RunConfig, suite_id: str, *, model: str, dataset: Dataset) -> RunPlan:
    """A job of one suite over rows that are at hand already (imported results); nothing of it is sent."""
    profile, reason = _profile(config, model)
    references, doubles = _reference_files(config)
    planned = _planned(load_suite(suite_id), config, profile, model, dataset, references, recorded=True)
    return RunPlan(
        config=config,
        model=model,
        profile=profile,
        profile_reason=reason,
        policy=_policy(config, contract_only=False),
        plan=Plan(suites=[planned], skipped=[], prices=None),
        in_process=False,
        counted_once=doubles,
    )


def prepare_measurement(config: RunConfig, policy: str) -> RunPlan:
    """What a measurement without suites needs: model, profile, prices; ``policy`` where the user names none."""
    model = config.model or (FIXTURE_MODEL if config.base_url is None else None)
    if model is None:
        raise ConfigError("--model: is needed beside --base-url (or KVV_MODEL)")
    profile, reason = _profile(config, model)
    chosen = config if config.policy else config.model_copy(update={"policy": policy})
    return RunPlan(
        config=config,
        model=model,
        profile=profile,
        profile_reason=reason,
        policy=_policy(chosen, contract_only=False),
        plan=Plan(suites=[], skipped=[], prices=_prices(config, profile)),
        in_process=config.base_url is None,
    )


def guard(*jobs: RunPlan, prices: str = "--price-in and --price-out") -> None:
    """What may cost much, all endpoints together, wants the user's word first; ``prices`` says how a price is named."""
    tokens = sum(job.plan.prompt_tokens + job.plan.completion_tokens for job in jobs)
    cost = sum((job.plan.cost or 0.0) + (job.plan.judge_cost or 0.0) for job in jobs)
    guard_amount(*jobs, tokens=tokens, cost=cost, prices=prices)


def check_bound(*jobs: RunPlan, prices: str = "--price-in and --price-out") -> None:
    """A bound on money cannot be kept where no price is known."""
    unpriced = next((job for job in jobs if job.plan.prices is None and not job.in_process), None)
    if jobs[0].config.max_cost is not None and unpriced is not None:
        raise ConfigError(
            f"--max-cost: no price of {unpriced.model} is known, so that the bound could not be kept; name {prices}"
        )


def guard_amount(*jobs: RunPlan, tokens: float, cost: float, prices: str = "--price-in and --price-out") -> None:
    """The same for amounts that stand in no plan: tokens of all kinds, and dollars."""
    config = jobs[0].config
    check_bound(*jobs, prices=prices)
    if config.yes or config.max_cost is not None or all(job.in_process for job in jobs):
        return
    if cost > COST_GUARD_USD:
        raise ConfigError(f"this run may cost about ${cost:,.0f}: say --yes, or set a bound with --max-cost")
    if tokens > TOKEN_GUARD:
        raise ConfigError(
            f"this run may use about {tokens / 1e6:,.0f}M tokens: say --yes, or set a bound with --max-cost"
        )


def control_request(job: RunPlan) -> Request:
    """The simplest valid request: it tells whether anybody is there. A discreet run asks it in words of its own."""
    plain = "Reply with exactly: ready"
    prompt = str(generator_for(job.config.seed, LIVENESS).choice(SMALL_TALK)) if job.config.discreet else plain
    body = {
        "model": job.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 16,
    }
    return Request(body={**body, **job.config.extra_body}, purpose=LIVENESS)


def generator_for(seed: int, suite: str) -> np.random.Generator:
    """Each suite draws from its own stream, so that adding a suite changes no other's order."""
    return np.random.default_rng([seed, zlib.crc32(suite.encode())])


# --- parts ---------------------------------------------------------------------------------------


def _profile(config: RunConfig, model: str) -> tuple[Profile, str]:
    name, reason = (config.profile, "asked for") if config.profile else pick_profile(model)
    try:
        profile = find_profile(name, config.surface).as_of(_today())
    except ProfileError as error:
        raise ConfigError(f"--profile: {error}") from error
    thinking = profile.thinking
    asked = [("--think-mode", config.think_mode, thinking.mode_names)] if config.think_mode else []
    asked += [("--effort", effort, thinking.efforts) for effort in config.effort]
    for option, value, known in asked:
        if value not in known:
            listed = ", ".join(known) or "none"
            raise ConfigError(f"{option}: the profile {profile.id} does not list {value!r:.60}; it lists: {listed}")
    return profile, reason


def _today() -> date:
    return datetime.now(UTC).date()


def _official_failures(profile: Profile) -> list[Waiver]:
    """What the official endpoint itself fails is nobody else's fault, until the measurement expires."""
    measured = profile.calibrated
    if measured is None:
        return []
    return [
        Waiver(
            case=escape(failure.id),
            reason=f"the official endpoint itself fails it ({failure.seen} of {failure.asked} measurements)",
            owner="kvv calibrate",
            expires=measured.expires,
        )
        for failure in measured.fails
        if is_rule(failure.rounds)
    ]


def _policy(config: RunConfig, *, contract_only: bool) -> Policy:
    """A shipped policy by name, or a file by path; without --policy the tier's own.

    Suites or cases named by the user, and ``kvv check``, are judged by the tier's margins, but nothing else is required
    beside them.
    """
    name = config.policy or TIER_POLICIES[config.tier or "smoke"]
    policy = choose_policy(name)
    if config.policy is None and (config.suites or config.case or contract_only) and policy.required != Required():
        policy = policy.model_copy(update={"name": f"{policy.name}-in-part", "required": Required()})
    return policy.model_copy(update={"strict": True}) if config.strict else policy


def _selected(config: RunConfig, profile: Profile, *, contract_only: bool) -> list[tuple[Suite, bool]]:
    """The suites to run, each with whether the user named it."""
    names = list(dict.fromkeys(config.suites))
    known = [*(name for name in names if is_inner(name)), *suite_ids()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"SUITE: no suite {unknown[0]!r}; known: {', '.join(known)}")
    # whoever gives a suite's data wants it asked
    usual = [name for name in known if name in profile.suites or name in config.data]
    chosen = names or (usual if config.base_url and not contract_only else known)
    try:
        suites = [(load_suite(name), name in names) for name in known if name in chosen]
    except SuiteError as error:
        raise ConfigError(f"SUITE: {error}") from error
    if contract_only:
        benchmarks = [suite.id for suite, named in suites if named and suite.kind is SuiteKind.BENCHMARK]
        if benchmarks:
            raise ConfigError(
                f"SUITE: {benchmarks[0]} is a benchmark; `kvv check` runs contract suites, `kvv run {benchmarks[0]}`"
                " runs it"
            )
        suites = [(suite, named) for suite, named in suites if suite.kind is not SuiteKind.BENCHMARK]
    for name in (*config.data, *(suite for suite in config.max_tokens if suite)):
        if name not in known:
            raise ConfigError(f"--data or --max-tokens: no suite {name!r}; known: {', '.join(known)}")
    _check_variants(config.variant or "", [suite for suite, _ in suites])
    return suites


def _check_variants(text: str, suites: Sequence[Suite]) -> None:
    """A variant that no suite takes would be asked for in vain."""
    if "=" not in text:
        if text and not any(_takes(suite, text) for suite in suites):
            raise ConfigError(
                f"--variant: no suite of this run has a variant {text!r:.60}; suites with variants:"
                f" {', '.join(_with_variants())}"
            )
        return
    for name, sign, value in (part.partition("=") for part in text.split(",")):
        name, value = name.strip(), value.strip()
        if not sign or not value or name not in _with_variants():
            raise ConfigError(
                f"--variant: wants V or SUITE=V[,SUITE=V], SUITE one of {', '.join(_with_variants())}; got {text!r:.80}"
            )
        if not _takes(load_suite(name), value):
            raise ConfigError(f"--variant: {name} has no variant {value!r:.60}")


def _takes(suite: Suite, variant: str) -> bool:
    try:
        return bool(suite.data_variant(variant))
    except ValueError as error:
        raise ConfigError(f"--variant: {error}") from error


def _with_variants() -> list[str]:
    return [name for name in suite_ids() if type(load_suite(name)).data_variant is not Suite.data_variant]


def _missing_need(suite: Suite, config: RunConfig) -> str:
    """Our own endpoint judges too; somebody else's is named by --judge-base-url."""
    if "judge" not in suite.needs:
        return ""
    if not config.judge_base_url:
        for name in ("effort", "extra_body", "prompts"):
            if getattr(config, f"judge_{name}"):
                option = f"--judge-{name.replace('_', '-')}"
                raise ConfigError(f"{option}: is for a judge of your own; name it by --judge-base-url")
    if config.base_url is None:
        return ""
    if not config.judge_base_url:
        return "no judge"
    if not config.judge_model:
        raise ConfigError("--judge-model: is needed beside --judge-base-url")
    if config.second_judge_model == config.judge_model:
        raise ConfigError("--second-judge-model: is the judge itself; agreement wants another model")
    return ""


def _sandbox(config: RunConfig, planned: PlannedSuite, *, named: bool) -> tuple[str, str]:
    """The name of a backend that works here and holds the suite's first case, and why there is none. ConfigError where
    one was asked for.
    """
    try:
        return choose(config.sandbox, Workspace.of(planned.cases[0].inputs["sandbox"])).name, ""
    except SandboxError as error:
        if config.sandbox is not None and named:
            raise ConfigError(f"--sandbox: {error}") from error
        return "", f"no sandbox: {error}"


def judge_of(config: RunConfig, model: str) -> Judge | None:
    """KVV's judge parameters, but the temperature of a model that accepts no other; without an endpoint of its own our
    endpoint judges.
    """
    name = (config.judge_model or "") if config.judge_base_url else model if config.base_url is None else ""
    return judge_named(name, config) if name else None


def judge_named(name: str, config: RunConfig) -> Judge:
    """An effort is sent as the judge's profile spells it, else as ``reasoning_effort``."""
    profile = load_profile(pick_profile(name)[0])
    fixed = any(0 <= values.get("temperature", -1) <= 2 for values in profile.decoding.rejected)
    temperature = profile.sampling_for("judge").temperature if fixed else JUDGE_TEMPERATURE
    effort: Mapping[str, object] = {}
    if config.judge_effort:
        effort = profile.thinking_body(on=True, effort=config.judge_effort)
        if effort == profile.thinking_body(on=True, effort=None):
            effort = {**effort, "reasoning_effort": config.judge_effort}
    return Judge(
        model=name,
        temperature=temperature,
        max_tokens=JUDGE_MAX_TOKENS,
        effort=config.judge_effort or "",
        extra_body={**effort, **config.judge_extra_body},
    )


def _other_tier(suite: Suite, config: RunConfig, profile: Profile, *, named: bool) -> str:
    """A suite that is too long for this tier is asked only where the user named it, its data, or KVV's sizes."""
    tiers = profile.sampling_for(suite.id).tiers
    if (
        not tiers
        or tier_of(config) in tiers
        or named
        or suite.id in config.data
        or config.base_url is None
        or config.preset == "kvv"
    ):
        return ""
    return f"not in the tier {tier_of(config)}, only where it is named"


def _dataset(
    suite: Suite, config: RunConfig, profile: Profile, load: Loader, *, named: bool, in_process: bool
) -> Dataset | Skipped | None:
    """The suite's rows: a file the user named, the shipped fixtures, or the pinned public data set in the tier's
    variant.
    """
    path = config.data.get(suite.id)
    if suite.dataset is None or (suite.dataset_optional and path is None):
        return None
    fixture = path == FIXTURE or (path is None and in_process)
    try:
        by_tier = (
            ""
            if path or in_process or config.preset == "kvv"
            else profile.sampling_for(suite.id).variant.get(tier_of(config), "")
        )
        variant = suite.data_variant(variant_for(config, suite.id) or by_tier)
    except ValueError as error:
        raise ConfigError(f"--variant: {error}") from error
    try:
        return load(suite.dataset, path=None if fixture else path, fixture=fixture, variant=variant)
    except DataError as error:
        if named or path is not None:
            raise ConfigError(f"--data {suite.id}: {error}") from error
        return Skipped(suite=suite.id, reason=f"no data: {error}")


def _planned(
    suite: Suite,
    config: RunConfig,
    profile: Profile,
    model: str,
    dataset: Dataset | None,
    references: Mapping[str, ReferenceFile],
    *,
    recorded: bool,
) -> PlannedSuite:
    """``references`` is by file name; ``recorded``: the answers are at hand, and nobody knows how they were asked
    for.
    """
    if suite.kind is SuiteKind.BENCHMARK:
        for name, found in references.items():
            _check_alike(
                name,
                found.header,
                suite,
                model,
                profile,
                dataset,
                None if recorded else settings_for(config, profile, suite),
            )
    named = _explicit_prices(config, profile)
    context = Context(
        model=model,
        # an agent keeps its own limit by the user's prices
        profile=profile if named is None else profile.model_copy(update={"prices": named}),
        settings=settings_for(config, profile, suite),
        tier=config.tier or "smoke",
        preset=config.preset or "",
        dataset=dataset,
        references=_references(suite, references, dataset, beside=bool(config.reference_base_url)),
        seed=config.seed,
        other_model=config.other_model or "",
        keyed=bool(config.base_url and not config.header_env and read_key(config.api_key_env, required=False)),
        tokenizer=_tokenizer(config.tokenizer),
        judge=judge_of(config, model) if "judge" in suite.needs else None,
        second_judge=(
            judge_named(config.second_judge_model, config)
            if "judge" in suite.needs and config.second_judge_model
            else None
        ),
        judge_prompts=read_judge_prompts(config.judge_prompts) if "judge" in suite.needs else None,
        agent=agent_of(config.agent) if "sandbox" in suite.needs else "",
        grader=grader_of(config.grader) if "sandbox" in suite.needs else "",
    )
    try:
        planned = plan_suite(
            suite,
            context,
            limit=question_limit(config, profile, suite),
            globs=config.case,
            generator=generator_for(config.seed, suite.id),
            gentle=config.gentle,
        )
        _check_programs(references, planned)
        for run in context.references:
            check_overlap(run, suite.id, [case.id for case in planned.cases])
        return planned
    except ReferenceError as error:
        raise ConfigError(f"--reference: {error}") from error
    except ValueError as error:  # a row that the suite cannot make a case of
        raise ConfigError(f"--data {suite.id}: {error}") from error


@cache
def _tokenizer(path: str | None) -> Tokenizer | None:
    """The model's own tokeniser, where ``--tokenizer`` names its merges (tiktoken's form) or a Hugging Face tokenizer
    folder; read once.
    """
    if path is None:
        return None
    place = Path(path).expanduser()
    merges = place if not place.is_dir() else place / "tiktoken.model"
    hub = place.name == "tokenizer.json" or not merges.exists()
    try:
        return HubTokenizer(read_tokenizer_json(place)) if hub and place.exists() else Bpe(read_merges(merges))
    except (DataError, ValueError) as error:
        raise ConfigError(f"--tokenizer: {error}") from error
    except ImportError as error:
        raise ConfigError(f"--tokenizer: needs the package {error.name} (pip install {error.name})") from None


def _references(
    suite: Suite, references: Mapping[str, ReferenceFile], dataset: Dataset | None, *, beside: bool
) -> Sequence[ReferenceRun]:
    """The runs of --reference; on shipped data without one, the official results that ship with it. ``beside``: the
    official endpoint is asked.
    """
    if suite.kind is not SuiteKind.BENCHMARK:
        return ()
    runs = [found.runs[suite.id] for found in references.values() if suite.id in found.runs]
    if runs or beside or dataset is None or not dataset.fixture:
        return runs
    with as_file(files("kvv.fixtures").joinpath("references", "fixture", f"{suite.id}.jsonl")) as path:
        shipped = _reference_file(path).runs.get(suite.id) if path.is_file() else None
    return () if shipped is None else (shipped,)


def _reference_file(path: Path) -> ReferenceFile:
    try:
        return read_reference(path)
    except ReferenceError as error:
        raise ConfigError(f"--reference: {error}") from error


def _check_alike(
    name: str,
    header: Header,
    suite: Suite,
    model: str,
    profile: Profile,
    dataset: Dataset | None,
    settings: Settings | None,
) -> None:
    """A reference of another model or other data, or one that was asked in another way, says nothing of this run."""
    if reason := another_model(header.model, model, profile):
        raise ConfigError(
            f"--reference: {name} is of the model {header.model!r:.60} ({reason}), this run of profile {profile.id}"
        )
    if suite.id not in header.asked:
        return  # a recording: somebody else's tool asked, and put its rows together
    otherwise = "" if settings is None else asked_otherwise(header.asked[suite.id], asdict(settings))
    if otherwise:
        raise ConfigError(f"--reference: {name} was asked {suite.id} in another way: {otherwise}")
    digest = header.data_sha256.get(suite.id, "")
    if digest and dataset and dataset.sha256 and digest != dataset.sha256:
        raise ConfigError(
            f"--reference: {name} was asked other data of {suite.id} (sha256 {digest[:12]} there, {dataset.sha256[:12]}"
            " here)"
        )


def _check_programs(references: Mapping[str, ReferenceFile], planned: PlannedSuite) -> None:
    """Scores of different agents or graders are not compared."""
    own = programs(planned.cases)
    for name, found in references.items():
        if otherwise := asked_otherwise(found.header.asked.get(planned.suite.id, {}), own):
            raise ConfigError(f"--reference: {name} was asked {planned.suite.id} in another way: {otherwise}")


def _reference_files(config: RunConfig) -> tuple[dict[str, ReferenceFile], tuple[str, ...]]:
    """Each run of --reference, by the name of its first file, read once; and a sentence on each file that holds one of
    them again.

    One run given twice would count as two official runs that agree in everything, beside which any honest vendor looks
    worse.
    """
    read: dict[str, ReferenceFile] = {}
    doubles = []
    for name in config.reference:
        found = _reference_file(Path(name))
        for earlier, other in read.items():
            if found.header.model != other.header.model:
                models = f"{other.header.model!r:.60} and {found.header.model!r:.60}"
                raise ConfigError(
                    f"--reference: {earlier} and {name} are of different models ({models}); official runs are of one"
                )
        same = next((earlier for earlier, other in read.items() if found.same_run(other)), None)
        if same is None:
            read[name] = found
        else:
            doubles.append(f"--reference: {same} and {name} hold the same run; it is counted once")
    return read, tuple(doubles)


def _judge_prices(config: RunConfig) -> Prices | None:
    """The published prices of a judge whose model has a profile of its own."""
    if not config.judge_base_url or not config.judge_model:
        return None
    return load_profile(pick_profile(config.judge_model)[0]).prices


def _explicit_prices(config: RunConfig, profile: Profile) -> Prices | None:
    """The user's, over the profile's where only some are named; None where none is."""
    explicit = (config.price_in, config.price_cached, config.price_out)
    if all(price is None for price in explicit):
        return None
    known = profile.prices or Prices(input=0.0, cached=0.0, output=0.0)
    return Prices(
        input=known.input if config.price_in is None else config.price_in,
        cached=known.cached if config.price_cached is None else config.price_cached,
        output=known.output if config.price_out is None else config.price_out,
    )


def _prices(config: RunConfig, profile: Profile) -> Prices | None:
    """Explicit prices, else the profile's published ones where the endpoint is somebody else's: one on this machine may
    be a gateway to that, and is taken for one where money is bounded.
    """
    paid = config.base_url and (not config.loopback or config.max_cost is not None)
    return _explicit_prices(config, profile) or (profile.prices if paid else None)
