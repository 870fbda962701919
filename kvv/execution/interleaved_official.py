"""The official endpoint asked beside the one under test (``--reference-base-url``): its job, and what its results
become.

It is a lane of its own with its own address, key and store (``reference/`` in the run's folder): an ordinary run of the
benchmarks, surface ``official``. What it concluded is the run's per-case reference, as a file of ``--reference`` would
be. Nothing that was given for the endpoint under test goes to it: no key, no header, no provider, no ``--extra-body``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kvv.cases.suite import SuiteKind
from kvv.core import Case, Outcome, Surface, Verdict
from kvv.decision.interleaved_reference import InterleavedReference, Part
from kvv.decision.rule_rates import MODEL
from kvv.decision.upstreams import find_mixed
from kvv.execution.preparation import prepare
from kvv.planning.config import ConfigError, RunConfig
from kvv.planning.run_plan import RunPlan
from kvv.profiles.profile import another_model
from kvv.storage.references import per_case
from kvv.storage.snapshot import PlannedVerdicts
from kvv.storage.store import Store

#: the sub-folder of the run's folder
FOLDER = "reference"


def lane_folder(folder: Path) -> Path:
    """The lane's folder. ConfigError where it is a link: reports would be written wherever that leads."""
    if (folder / FOLDER).is_symlink():
        raise ConfigError(f"RUN: {folder / FOLDER} is a link; put the folder itself there")
    return folder / FOLDER


def reference_job(job: RunPlan) -> RunPlan | None:
    """The official endpoint's part of this run; None where none is named or no benchmark is planned. ConfigError in one
    line.
    """
    config = job.config
    if config.reference_base_url is None or job.contract_only:
        return None
    if job.in_process:
        raise ConfigError("--reference-base-url: wants an endpoint to compare it with, name --base-url")
    if config.shard:
        raise ConfigError(
            "--reference-base-url: not beside --shard: each part would be judged against a part of the reference"
        )
    benchmarks = tuple(item.suite.id for item in job.plan.suites if item.suite.kind is SuiteKind.BENCHMARK)
    if not benchmarks:
        return None
    read = {item.suite.dataset: item.context.dataset for item in job.plan.suites if item.context.dataset is not None}
    official = prepare(_config(config, job, benchmarks), load=lambda name, **how: read[name])
    if reason := another_model(official.model, job.model, job.profile):
        raise ConfigError(
            f"--reference-model: {official.model!r:.60} is another model ({reason}), this run is of profile"
            f" {job.profile.id}"
        )
    if _samples(job, benchmarks) != _samples(official, benchmarks):
        raise ConfigError(
            "--reference-base-url: the official endpoint cannot be asked the same questions under this profile"
        )
    return official


def _config(config: RunConfig, job: RunPlan, benchmarks: tuple[str, ...]) -> RunConfig:
    return config.model_copy(
        update={
            "suites": benchmarks,
            "base_url": config.reference_base_url,
            "model": config.reference_model or job.model,
            "api_key_env": config.reference_api_key_env,
            "header_env": {},
            "provider": None,
            "extra_body": {},
            "other_model": None,
            "profile": job.profile.id,
            "surface": Surface.OFFICIAL,
            # how the switch is sent is the surface's affair; whether it is on is the same
            "think_mode": None,
            "price_in": config.reference_price_in,
            "price_cached": config.reference_price_cached,
            "price_out": config.reference_price_out,
            "reference": (),
            "as_reference": None,
            "reference_base_url": None,
            "reference_model": None,
            "json_output": False,
        }
    )


def _samples(job: RunPlan, suites: tuple[str, ...]) -> dict[str, int]:
    return {
        case.id: item.samples[case.id] for item in job.plan.suites if item.suite.id in suites for case in item.cases
    }


def adopt(store: Store, reference: Store) -> None:
    """The lane's results, as far as it came, become the run's reference; those of an earlier part of a resumed run are
    replaced.
    """
    meta, theirs = store.meta(), reference.meta()
    name = f"{theirs['model']} ({theirs['run_id']})"
    stop = (theirs.get("stop") or {}).get("sentence", "")
    planned = [entry["id"] for entry in theirs["suites"]]
    mixes = find_mixed(reference.answered_by(), planned)
    parts: dict[str, Part] = {}
    suites = []
    for entry in meta["suites"]:
        suite = entry["id"]
        if suite in planned:
            counts = {True: 0, False: 0}
            verdicts = _counting(PlannedVerdicts(reference, suite, blocked=False, why=stop), counts)
            cases = {case: [values or {} for values in samples] for (_, case), samples in per_case(verdicts).items()}
            parts[suite] = Part(
                planned=counts[True] + counts[False], concluded=counts[True], mixed=mixes.get(suite, "")
            )
            others = [run for run in entry["references"] if run["name"] != name]
            entry = {**entry, "references": [*others, {"name": name, "model": theirs["model"], "cases": cases}]}
        suites.append(entry)
    beside = InterleavedReference(
        run_id=theirs["run_id"],
        base_url=theirs["base_url"],
        stop=stop,
        suites=parts,
        answers=sum(reference.answer_counts().values()),
        objected=_objected(reference),
    )
    store.set_meta("suites", suites)
    store.set_meta("beside", beside.model_dump(mode="json"))
    traffic = reference.traffic()
    store.put_event(
        "reference",
        {"run_id": theirs["run_id"], "requests": traffic["requests"], "cost": traffic["cost"], "stop": stop},
    )
    store.flush()


def _objected(reference: Store) -> dict[str, int]:
    objected: Counter[str] = Counter()
    for group in reference.finding_groups():
        if group.rule.startswith(MODEL):
            objected[group.rule] += group.exchanges
    return dict(objected)


def _counting(verdicts: PlannedVerdicts, counts: dict[bool, int]) -> Iterator[tuple[Case, Verdict]]:
    for case, verdict in verdicts:
        counts[verdict.outcome in (Outcome.PASS, Outcome.FAIL)] += 1
        yield case, verdict
