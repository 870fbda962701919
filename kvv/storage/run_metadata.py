"""What the store knows of a run beside its exchanges, and how a suite's context is rebuilt from it.

Everything a report needs stands in the store: a run can be moved, re-scored and re-rendered alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, StrictBool, StrictInt, ValidationError

from kvv.cases.suite import Context, ReferenceRun, Settings, Suite, SuiteKind, load_suite
from kvv.core import Dataset, Surface
from kvv.decision import SuiteRun
from kvv.decision.inputs import OfficialRates
from kvv.decision.interleaved_reference import InterleavedReference
from kvv.planning.config import read_key
from kvv.planning.plan import PlannedSuite
from kvv.planning.published_means import published_means, published_otherwise
from kvv.planning.run_plan import RunPlan
from kvv.profiles.policy import Policy
from kvv.profiles.profile import Profile, load_profile, shipped_profiles
from kvv.protocol.redaction.redactor import redact_url
from kvv.storage.run_folder import vendor_of
from kvv.storage.seal import RECORD, seal
from kvv.storage.store import Store, StoreError


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def run_meta(job: RunPlan, run_id: str, version: str) -> dict[str, Any]:
    """The meta record a run begins with."""
    config = job.config
    return {
        "run_id": run_id,
        "kvv_version": version,
        "started": now(),
        "seed": config.seed,
        "base_url": ""
        if config.public
        else redact_url(config.base_url)
        if config.base_url
        else "in-process reference endpoint",
        # names of variables, never what they hold: "" where no key was sent
        "api_key_env": config.api_key_env if config.base_url and read_key(config.api_key_env, required=False) else "",
        "header_env": dict(config.header_env),
        "vendor": vendor_of(config.base_url),
        "model": job.model,
        "profile": job.profile.id,
        # a profile that does not ship may be gone when the run is judged again
        "profile_table": None if job.profile.id in shipped_profiles() else job.profile.model_dump(mode="json"),
        "profile_reason": job.profile_reason,
        "surface": job.profile.surface.value,
        "tier": config.tier or ("smoke" if config.base_url else "full"),
        "preset": config.preset or "",
        "policy": job.policy.model_dump(mode="json"),
        "policy_sha256": job.policy.sha256,
        "chosen_cases": list(config.case),
        "published": {
            suite: asdict(mean)
            for suite, mean in published_means(job.profile.id, config.preset or "", job.plan.suites).items()
        },
        "published_otherwise": published_otherwise(job.profile.id, config.preset or "", job.plan.suites),
        "official_rules": asdict(job.official),
        "in_process": job.in_process,
        "sandbox": job.sandbox,
        RECORD: seal(config, run_id),
        "contract_only": job.contract_only,
        "suites": [suite_meta(item) for item in job.plan.suites],
        "skipped": [
            {
                "id": item.suite,
                "kind": load_suite(item.suite).kind.value,
                "title": load_suite(item.suite).title,
                "skipped": item.reason,
            }
            for item in job.plan.skipped
        ],
    }


def _moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


_Moment = Annotated[str, AfterValidator(_moment)]


class _SuiteRecord(BaseModel):
    id: str
    kind: SuiteKind
    title: str
    version: str
    settings: dict[str, Any]
    dataset: dict[str, Any] | None
    references: list[dict[str, Any]]


class _SkippedRecord(BaseModel):
    id: str
    kind: SuiteKind
    title: str
    skipped: str


class _RunRecord(BaseModel):
    """What ``run_meta`` writes, and what is added at the end."""

    run_id: str
    kvv_version: str
    started: _Moment
    finished: _Moment | None = None
    profile_table: Profile | None = None
    seed: StrictInt
    base_url: str
    vendor: str
    model: str
    profile: str
    profile_reason: str
    surface: Surface
    tier: str
    preset: str
    policy: dict[str, Any]
    in_process: StrictBool
    contract_only: StrictBool
    suites: list[_SuiteRecord]
    skipped: list[_SkippedRecord]
    stop: dict[str, str] | None = None
    server_counts: dict[str, Any] | None = None
    beside: InterleavedReference | None = None
    official_rules: OfficialRates = OfficialRates()


def check_meta(store: Store) -> dict[str, Any]:
    """The run's meta record, of which everything that a report needs can be made; StoreError says what is missing."""
    meta = store.meta()
    try:
        _RunRecord.model_validate(meta)
        policy_of(meta)
        recorded_suites(meta)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise StoreError(
            f"{store.path}: damaged, or not the store of a run: its record {place!r} is {_lack(first)}"
        ) from None
    except (KeyError, TypeError, ValueError) as error:  # a setting or a suite that this version does not know
        raise StoreError(f"{store.path}: its record cannot be read: {' '.join(str(error).split())[:300]}") from error
    return meta


def _lack(problem: Any) -> str:
    return "missing" if problem["type"] == "missing" else f"wrong ({problem['msg']})"


def suite_meta(item: PlannedSuite) -> dict[str, Any]:
    dataset, suite = item.context.dataset, item.suite
    return {
        "id": suite.id,
        "kind": suite.kind.value,
        "title": suite.title,
        "version": suite.version,
        "settings": asdict(item.context.settings),
        "dataset": None
        if dataset is None
        else {
            "origin": dataset.origin,
            "revision": dataset.revision,
            "sha256": dataset.sha256,
            "fixture": dataset.fixture,
            "rows": len(dataset.rows),
        },
        "references": [
            {
                "name": run.name,
                "model": run.model,
                "cases": {case: list(samples) for case, samples in run.cases.items()},
            }
            for run in item.context.references
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSuite:
    suite: Suite
    context: Context


def profile_of(meta: Mapping[str, Any]) -> Profile:
    """The run's profile on its surface: as the run kept it, else the shipped one."""
    kept = meta.get("profile_table")
    return Profile.model_validate(kept) if kept else load_profile(meta["profile"], Surface(meta["surface"]))


def recorded_suites(meta: Mapping[str, Any]) -> list[RecordedSuite]:
    """The run's suites with their contexts, without data rows."""
    profile = profile_of(meta)
    return [
        RecordedSuite(
            suite=load_suite(entry["id"]),
            context=Context(
                model=meta["model"],
                profile=profile,
                settings=Settings(**entry["settings"]),
                tier=meta["tier"],
                preset=meta["preset"],
                dataset=_dataset(entry["dataset"]),
                references=tuple(ReferenceRun(**run) for run in entry["references"]),
                seed=meta["seed"],
            ),
        )
        for entry in meta["suites"]
    ]


def _dataset(entry: Mapping[str, Any] | None) -> Dataset | None:
    if entry is None:
        return None
    return Dataset(
        rows=(), origin=entry["origin"], revision=entry["revision"], sha256=entry["sha256"], fixture=entry["fixture"]
    )


def suite_runs(meta: Mapping[str, Any]) -> Sequence[SuiteRun]:
    """Selected suites in report order, skipped ones with their reason; benchmarks that the gate held back count as
    skipped.
    """
    blocked = bool(meta.get("blocked"))
    runs = [
        SuiteRun(
            id=entry["id"],
            kind=SuiteKind(entry["kind"]),
            title=entry["title"],
            fixture=bool(entry["dataset"] and entry["dataset"]["fixture"]),
            skipped="the parameter gate failed" if blocked and entry["kind"] == SuiteKind.BENCHMARK else "",
        )
        for entry in meta["suites"]
    ]
    return [
        *runs,
        *(
            SuiteRun(id=entry["id"], kind=SuiteKind(entry["kind"]), title=entry["title"], skipped=entry["skipped"])
            for entry in meta["skipped"]
        ),
    ]


def official_rates(meta: Mapping[str, Any]) -> OfficialRates:
    """How often rules about the model itself objected at the official endpoint, in references and beside the run."""
    beside = InterleavedReference.of(meta)
    kept = OfficialRates(**(meta.get("official_rules") or {}))
    return kept.plus(OfficialRates(answers=beside.answers, objected=beside.objected))


def policy_of(meta: Mapping[str, Any]) -> Policy:
    return Policy.model_validate(meta["policy"])
