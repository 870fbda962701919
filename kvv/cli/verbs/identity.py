"""`kvv identity`: asks the endpoint, and sets its answers against those of official runs in files."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from kvv import __version__
from kvv.cli.flags import flags_of
from kvv.cli.verbs.documents import put, write
from kvv.cli.verbs.session import announce
from kvv.core import Outcome, Role
from kvv.core.exit_codes import ExitCode
from kvv.decision.identity import IdentityData, PromptData, forms_p, judge, probe_pairs
from kvv.execution.executor import check_endpoints, endpoints, reference_target
from kvv.execution.identity.ask import MAX_TOKENS, PROBE_TOKENS, Asked, Interview, settings_of
from kvv.execution.identity.prompts import PROBES, PROMPTS
from kvv.execution.preparation import guard_amount, prepare_measurement
from kvv.execution.scheduling.budget import Budget, RunBounds, price_of
from kvv.planning.config import ConfigError, load_config
from kvv.planning.run_plan import RunPlan
from kvv.profiles.profile import another_model
from kvv.protocol.redaction.redactor import redact_url
from kvv.rendering.document import html, markdown
from kvv.rendering.escape import plain
from kvv.reporting.identity import IdentityReport, as_json, document
from kvv.storage.identity_reference import IdentityAnswers, read_identity, write_identity
from kvv.storage.run_folder import create_folder, vendor_of

NAME = "identity"
SAMPLES, MOST_SAMPLES = 7, 100
#: a share of unanswered requests above which nothing is said
LOST_SHARE = 0.2


def identity(arguments: argparse.Namespace) -> int:
    flags = flags_of(arguments)
    samples, warn = flags.pop("samples", SAMPLES), flags.pop("on_difference", "fail") == "warn"
    job = prepare_measurement(load_config(flags), "smoke")
    config = job.config
    if not 2 <= samples <= MOST_SAMPLES:
        raise ConfigError(f"--samples: wants 2 to {MOST_SAMPLES}, got {samples}")
    if not config.reference and not config.as_reference:
        raise ConfigError("--reference: name the files of two official runs, or write one with --as-reference")
    if config.as_reference and not Path(config.as_reference).absolute().parent.is_dir():
        raise ConfigError(f"--as-reference: {config.as_reference} is no file that can be written")
    references = _references(job)
    requests = len(PROMPTS) * (samples + 1)
    probes = 2 * len(PROBES)
    amount = {"prompt": 40 * (requests + probes), "completion": MAX_TOKENS * requests + PROBE_TOKENS * probes}
    guard_amount(
        job,
        tokens=sum(amount.values()),
        cost=0.0 if job.prices is None else price_of(job.prices, cached=0, **amount),
    )
    check_endpoints(job)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    bounds = RunBounds(
        requests=config.max_requests,
        tokens=config.max_tokens_total,
        cost=config.max_cost,
        deadline_s=config.deadline,
    )
    budget = Budget(bounds, job.prices)
    with reference_target(job) as (base_url, _):
        target = endpoints(job, base_url)[Role.TARGET]
        asked = asyncio.run(Interview(job, target, replace(target, discreet=True), budget, samples).run())
    if config.as_reference:
        _keep(job, asked, started)
    if not references:
        return ExitCode.PASS if _enough(asked) else ExitCode.INCONCLUSIVE
    if not asked.answered:
        announce(f"nothing can be compared: {_lost(asked)}")
        return ExitCode.INCONCLUSIVE
    report = _report(job, asked, references, started, budget)
    code = _code(report, warn=warn)
    owner = f"{NAME}-{vendor_of(config.base_url)}"
    folder = create_folder(config.out, owner, job.model, shared=config.shared)
    _write(report, folder, code, job)
    return code


def _references(job: RunPlan) -> list[IdentityAnswers]:
    settings, found = settings_of(job.config, job.profile), list[IdentityAnswers]()
    if len(job.config.reference) > 2:
        raise ConfigError("--reference: two official runs are compared, no more")
    for name in job.config.reference:
        one = read_identity(Path(name), settings, len(PROMPTS))
        if reason := another_model(one.model, job.model, job.profile):
            raise ConfigError(f"--reference: {name} is of the model {one.model!r:.60} ({reason})")
        if not any(each.texts for each in one.prompts):
            raise ConfigError(f"--reference: {name} holds no answer")
        if any(one.prompts == other.prompts for other in found):
            raise ConfigError(f"--reference: {name} holds the same run as the file before; two runs are needed")
        found.append(one)
    return found


def _enough(asked: Asked) -> bool:
    return asked.answered >= (1 - LOST_SHARE) * asked.planned


def _keep(job: RunPlan, asked: Asked, started: str) -> None:
    path = Path(job.config.as_reference or "")
    if not _enough(asked):
        announce(f"{path} is not written: {_lost(asked)}")
        return
    settings = settings_of(job.config, job.profile)
    write_identity(path, IdentityAnswers(model=job.model, created=started, asked=settings, prompts=asked.prompts))
    print(plain(f"{path}: {asked.answered} answers to {len(PROMPTS)} prompts"), file=sys.stderr)


def _lost(asked: Asked) -> str:
    reasons = ", ".join(f"{reason} ({count})" for reason, count in asked.lost.most_common(3))
    return f"{asked.planned - asked.answered} of {asked.planned} requests got no answer: {reasons or 'unknown'}"


def _report(
    job: RunPlan, asked: Asked, references: list[IdentityAnswers], started: str, budget: Budget
) -> IdentityReport:
    prompts = []
    for number, ours in enumerate(asked.prompts):
        theirs = [one.prompts[number] for one in references]
        greedy = [one.greedy for one in (*theirs, ours)]
        tokens = [one.distributions for one in (*theirs, ours)]
        three = len(theirs) == 2
        prompts.append(
            PromptData(
                references=tuple(tuple(one.texts) for one in theirs),
                texts=tuple(ours.texts),
                greedy=tuple(text for text in greedy if text is not None) if three and None not in greedy else None,
                distributions=tuple(tokens) if three and all(tokens) else None,
            )
        )
    generator = np.random.default_rng([job.config.seed, 2])
    try:
        result = judge(IdentityData(prompts=tuple(prompts)), generator)
    except ValueError as error:
        raise ConfigError(f"--reference: {error}") from None
    notes = []
    if not _enough(asked):
        notes.append(f"too little was answered: {_lost(asked)}")
        result = replace(result, outcome=Outcome.INCONCLUSIVE, sentence=notes[0])
    if asked.refused:
        notes.append(f"no greedy answers: temperature 0 is refused ({asked.refused[:200]})")
    elif not any(one.distributions for one in asked.prompts):
        notes.append("no distributions of the next token: log probabilities are not served")
    if len(references) < 2:
        notes.append("one official run: greedy answers and distributions want a second one")
    return IdentityReport(
        title=f"{job.model} at {_address(job)}, {started}, against {len(references)} official runs",
        result=result,
        form_p=None if job.config.discreet else forms_p(asked.forms, generator),
        probes=probe_pairs(asked.probes),
        notes=notes,
        rules=asked.rules,
        facts={
            "started": started,
            "kvv_version": __version__,
            "seed": job.config.seed,
            "endpoint": {"base_url": _address(job), "model": job.model},
            "profile": job.profile.id,
            "references": [{"model": one.model, "created": one.created} for one in references],
            "answers": asked.answered,
            "requests": budget.spent.requests,
            "cost": budget.spent.cost if job.prices else None,
        },
    )


def _address(job: RunPlan) -> str:
    if job.in_process:
        return "our own endpoint"
    return "an endpoint" if job.config.public else redact_url(job.config.base_url or "")


def _code(report: IdentityReport, *, warn: bool) -> int:
    outcome = report.result.outcome
    if outcome is Outcome.FAIL or report.recognised:
        return ExitCode.PASS if warn else ExitCode.FAIL
    return ExitCode.PASS if outcome is Outcome.PASS else ExitCode.INCONCLUSIVE


def _write(report: IdentityReport, folder: Path, code: int, job: RunPlan) -> None:
    shown, data = document(report), as_json(report, code=code)
    for ending, text in (("md", markdown(shown)), ("html", html(shown)), ("json", data)):
        write(folder / f"{NAME}.{ending}", text, "--out")
    if job.config.json_output:
        sys.stdout.write(data)
    elif job.config.quiet:
        print(plain(report.headline, 1_000))
    else:
        put(argparse.Namespace(format="text", to=None), shown, lambda: data)
    if report.result.outcome is Outcome.FAIL:
        announce("a difference is no harm by itself: measure it with `kvv run`")
    where = sys.stderr if job.config.json_output else sys.stdout
    print(plain(str(folder / f"{NAME}.html"), 1_000), file=where)
