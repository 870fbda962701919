"""A/A and power table of the verdict: simulated vendors against the shipped margins.

    python bench/verdicts.py [--quick] [--only TITLE] [--seed N]

Simulated vendors answer questions with fixed success probabilities, fresh draws in every run. OCRBench's are bimodal (a
beta distribution) and calibrated so that passes of 1,000 questions vary with sd .0027 around .9076, as twenty recorded
passes did. Every row prints what was asked of it; the exit code is 1 if a row falls short. Decisions come from
kvv.decision and kvv.stats, nothing is restated here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from kvv.cases.suite import Context, ReferenceRun, Settings, SuiteKind, load_suite
from kvv.core import Area, Case, Level, Outcome, Stat, Verdict
from kvv.decision import (
    Collector,
    DecisionEvidence,
    InterimAnalysis,
    SuiteRun,
    decide,
    decide_look,
    expected_design,
    forecast,
)
from kvv.decision.benchmark import too_few
from kvv.planning.interim_plan import InterimPlan, plan_looks
from kvv.planning.plan import PlannedSuite
from kvv.profiles.policy import BenchmarkMode, Policy, load_policy
from kvv.profiles.profile import load_profile
from kvv.stats import (
    Design,
    bca_interval,
    clopper_pearson,
    equal_looks,
    failing_difference,
    obrien_fleming,
    tango_limits,
)
from kvv.stats.constrained import mean_p, mean_p_below
from kvv.stats.interval import ClusterSum, clustered_mean, normal_quantile
from kvv.stats.metrics import MeanTally, Metric
from kvv.stats.paired import PairedCase, paired_difference

Floats = NDArray[np.float64]

OCR_MEAN, OCR_SD, OCR_N = 0.9076, 0.0027, 1000
ALPHA = 0.05
USED = "larger standard error, outer of t and BCa (used)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    measured: float
    asked: str
    ok: bool


def at_least(name: str, measured: float, limit: float, runs: int = 0) -> Row:
    """``runs``: allow three Monte-Carlo standard errors, for a rate that should lie at the limit itself."""
    room = 3 * (limit * (1 - limit) / runs) ** 0.5 if runs else 0.0
    return Row(
        name=name,
        measured=measured,
        asked=f">= {limit:g}" + (f" - {room:.3f}" if runs else ""),
        ok=measured >= limit - room,
    )


def at_most(name: str, measured: float, limit: float, runs: int = 0) -> Row:
    room = 3 * (limit * (1 - limit) / runs) ** 0.5 if runs else 0.0
    return Row(
        name=name,
        measured=measured,
        asked=f"<= {limit:g}" + (f" + {room:.3f}" if runs else ""),
        ok=measured <= limit + room,
    )


def shown(name: str, measured: float) -> Row:
    return Row(name=name, measured=measured, asked="", ok=True)


def bimodal(mean: float, noise: float, n: int, rng: np.random.Generator) -> Floats:
    """Success probabilities with E[p] = mean and E[p(1-p)] = noise: Beta(m s, (1-m) s) with s/(s+1) =
    noise/(m(1-m)).
    """
    share = noise / (mean * (1 - mean))
    s = share / (1 - share)
    return np.asarray(rng.beta(mean * s, (1 - mean) * s, n), dtype=np.float64)


def ocr_questions(rng: np.random.Generator) -> Floats:
    """One set of questions, drawn again until its own mean and run-to-run sd are the recorded ones."""
    for _ in range(10_000):
        p = bimodal(OCR_MEAN, OCR_SD**2 * OCR_N, OCR_N, rng)
        sd = float(np.sqrt((p * (1 - p)).sum())) / OCR_N
        if abs(p.mean() - OCR_MEAN) < 0.001 and abs(sd - OCR_SD) < 0.0001:
            return p
    raise RuntimeError("no such set of questions")


def spread(p: Floats, loss: float, rng: np.random.Generator) -> Floats:
    """A loss spread over all questions in proportion to what they had."""
    return p * (1 - loss / float(p.mean()))


def concentrated(p: Floats, loss: float, rng: np.random.Generator) -> Floats:
    """A loss that breaks some questions wholly, others not at all."""
    out = p.copy()
    for i in rng.permutation(len(p)):
        if p.mean() - out.mean() >= loss - 1e-12:
            break
        out[i] = max(0.0, p[i] - (loss - (p.mean() - out.mean())) * len(p))
    return out


# --- one binary sample a side ------------------------------------------------------------------------


def tables(vendor: Floats, reference: Floats, runs: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Discordant counts (gained, lost) of ``runs`` fresh pairs of runs."""
    v = rng.random((runs, len(vendor))) < vendor
    r = rng.random((runs, len(reference))) < reference
    return (v & ~r).sum(axis=1).astype(np.float64), (~v & r).sum(axis=1).astype(np.float64)


def single(rng: np.random.Generator, runs: int) -> list[Row]:
    margin = _margin("ocrbench")
    p = ocr_questions(rng)
    z = normal_quantile(1 - ALPHA)
    passes = np.array([(rng.random(OCR_N) < p).mean() for _ in range(20)])
    mean, sd = float(passes.mean()), float(passes.std(ddof=1))
    design = Design(n=OCR_N, sigma2=float((p * (1 - p)).mean()))
    bad = margin + failing_difference(design, margin, alpha=ALPHA, power=0.95)
    rows = [
        Row(
            name="mean of 20 passes of an OCRBench-sized set",
            measured=mean,
            asked="about .9076",
            ok=abs(mean - OCR_MEAN) < 0.003,
        ),
        # a sample sd of 20 scatters by a sixth: three times that
        Row(
            name="sd of 20 passes of an OCRBench-sized set",
            measured=sd,
            asked="about .0027",
            ok=abs(sd - OCR_SD) < OCR_SD / 2,
        ),
    ]

    def decided(vendor: Floats) -> tuple[float, float, float]:
        b, c = tables(vendor, p, runs, rng)
        low, high = tango_limits(b, c, OCR_N, z)
        truth = float((vendor - p).mean())
        return (
            float((low > -margin).mean()),
            float((high < -margin).mean()),
            float(((low <= truth) & (truth <= high)).mean()),
        )

    passed, failed, covered = decided(p)
    rows.append(at_least(f"identical vendor passes, margin {100 * margin:g} points", passed, 0.95))
    rows.append(at_most("identical vendor fails", failed, 0.01))
    rows.append(at_least("90 % interval covers the true difference, identical vendor", covered, 0.9, runs))
    for name, lose in (("spread over all questions", spread), ("whole questions lost", concentrated)):
        at_margin, _, covered = decided(lose(p, margin, rng))
        _, failed, _ = decided(lose(p, bad, rng))
        rows.append(at_most(f"vendor at the margin passes, {name}", at_margin, 0.05, runs))
        rows.append(at_least(f"vendor {100 * bad:.2f} points worse fails, {name}", failed, 0.95))
        rows.append(at_least(f"90 % interval covers the true difference, {name}", covered, 0.9, runs))
    rows.append(_multinomial_coverage(rng, runs))
    return rows


def _multinomial_coverage(rng: np.random.Generator, runs: int) -> Row:
    """The interval takes questions as drawn: with fresh questions too it covers at its nominal rate."""
    inside = 0
    z = normal_quantile(1 - ALPHA)
    for _ in range(runs):
        p = bimodal(OCR_MEAN, OCR_SD**2 * OCR_N * 4, 500, rng)
        v = p * 0.96
        b, c = tables(v, p, 1, rng)
        low, high = tango_limits(b, c, 500, z)
        inside += bool(low[0] <= -0.04 * OCR_MEAN <= high[0])
    rate = inside / runs
    return at_least("90 % interval covers, fresh questions in every run, loss of 3.6 points", rate, 0.9, runs)


# --- repeats -----------------------------------------------------------------------------------------


def repeats(rng: np.random.Generator, runs: int) -> list[Row]:
    """AIME: 30 questions x 32 samples a side, mean .9; what t, BCa and their outer limits cover."""
    margin = _margin("aime2025")
    inside = {"t": 0, "BCa": 0, USED: 0}
    passed = 0
    for _ in range(runs):
        p = bimodal(0.9, 0.05, 30, rng)
        v, r = rng.binomial(32, p) / 32, rng.binomial(32, p) / 32
        sums = [ClusterSum(n=1, total=float(d)) for d in v - r]
        t = clustered_mean(sums).interval(0.9)
        noise = (v * (1 - v) + r * (1 - r)) / 31
        cases = [
            PairedCase(vendor=float(a), reference=float(b), variance=float(e))
            for a, b, e in zip(v, r, noise, strict=True)
        ]
        used = paired_difference(cases, rng, 0.9).interval
        for name, interval in (("t", t), ("BCa", bca_interval(sums, rng, 0.9, draws=2000)), (USED, used)):
            inside[name] += interval is not None and interval.low <= 0 <= interval.high
        passed += used.low > -margin
    rows = []
    for name, count in inside.items():
        rate = count / runs
        label = f"AIME 30 x 32: nominal 90 % interval covers 0, {name}"
        rows.append(at_least(label, rate, 0.9, runs) if name == USED else shown(label, rate))
    rows.append(at_least(f"AIME: identical vendor passes, margin {100 * margin:g} points", passed / runs, 0.95))
    return rows


# --- the whole policy --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A suite of questions with success probabilities; ``draw`` makes one run's score per question and sample."""

    id: str
    p: Floats
    samples: int
    draw: Callable[[Floats, np.random.Generator], Floats]
    key: str = "score"
    runs: int = 1


def binary(p: Floats, rng: np.random.Generator) -> Floats:
    """Right or wrong."""
    return (rng.random(p.shape) < p).astype(np.float64)


def graded(p: Floats, rng: np.random.Generator) -> Floats:
    """Scores of five rubric points, each kept with the question's probability (BEAM)."""
    return rng.binomial(5, p) / 5


def release_suites(rng: np.random.Generator) -> list[Simulated]:
    """KVV's sizes. E[p(1-p)] = m(1-m)(1-rho): rho .8 where nothing was recorded."""
    return [
        Simulated(id="ocrbench", p=ocr_questions(rng), samples=1, draw=binary),
        Simulated(id="mmmu_pro", p=bimodal(0.82, 0.1476 * 0.2, 1730, rng), samples=1, draw=binary),
        Simulated(id="aime2025", p=bimodal(0.9, 0.07, 30, rng), samples=32, draw=binary, key="correct"),
        Simulated(
            id="toolcall", p=bimodal(0.55, 0.2475 * 0.4, 2000, rng), samples=1, draw=binary, key="triggered", runs=5
        ),
        Simulated(id="swebench", p=bimodal(0.65, 0.2275 * 0.2, 500, rng), samples=1, draw=binary),
        Simulated(id="beam", p=bimodal(0.31, 0.05, 700, rng), samples=1, draw=graded),
    ]


def drawn(suite: Simulated, p: Floats, rng: np.random.Generator) -> Floats:
    """One run's scores, questions x samples."""
    return suite.draw(np.repeat(p[:, None], suite.samples, axis=1), rng)


def official(suite: Simulated, rng: np.random.Generator) -> list[ReferenceRun]:
    return [reference_of(suite, drawn(suite, suite.p, rng), number) for number in range(suite.runs)]


def reference_of(suite: Simulated, scores: Floats, number: int = 0) -> ReferenceRun:
    cases = {f"{suite.id}/{i}": [{suite.key: float(x)} for x in row] for i, row in enumerate(scores)}
    return ReferenceRun(name=f"official {number}", model="m", cases=cases)


def vendor_run(suite: Simulated, p: Floats, rng: np.random.Generator) -> list[tuple[Case, Verdict]]:
    return verdicts_of(suite, drawn(suite, p, rng))


def verdicts_of(suite: Simulated, scores: Floats) -> list[tuple[Case, Verdict]]:
    found = []
    for i, row in enumerate(scores):
        name = f"{suite.id}/{i}"
        chat = f"conversation {i // 20}" if suite.id == "beam" else ""
        case = Case(
            id=name,
            suite=suite.id,
            area=Area.ACCURACY,
            level=Level.MUST,
            requirement="",
            source="",
            since="1",
            inputs={"block": chat} if chat else {},
            cluster=chat,
        )
        for sample, x in enumerate(row):
            outcome = Outcome.PASS if x > 0 or suite.key == "triggered" else Outcome.FAIL
            found.append((case, Verdict(case=name, sample=sample, outcome=outcome, values={suite.key: float(x)})))
    return found


def row_of(suite: Simulated, verdicts: list[tuple[Case, Verdict]]) -> Stat:
    if suite.key == "triggered":
        metric = Metric(metric="trigger_f1", key="triggered", primary=True)
    else:
        metric = Metric(metric="accuracy", key=suite.key, primary=True)
    tally = MeanTally(suite.id, metric)
    for case, verdict in verdicts:
        tally.add(case, verdict)
    return tally.stat()


def judge(
    policy: Policy,
    suites: list[Simulated],
    worse: dict[str, Floats],
    rng: np.random.Generator,
    *,
    looks: Mapping[str, InterimPlan] | None = None,
) -> Judged:
    """One run of the whole policy; ``worse`` gives a suite other success probabilities than the official endpoint's.

    Suites with ``looks`` are asked part by part and end where ``decide_look`` ends them, as a run with ``--early-stop``
    does.
    """
    collector = Collector(policy, [SuiteRun(id=s.id, kind=SuiteKind.BENCHMARK) for s in suites], date(2026, 1, 1))
    seed = int(rng.integers(2**31))
    stats, references, taken = [], {}, {}
    asked: dict[str, int] = {}
    for suite in suites:
        references[suite.id] = official(suite, rng)
        verdicts = vendor_run(suite, worse.get(suite.id, suite.p), rng)
        plan = (looks or {}).get(suite.id)
        if plan is None:
            for case, verdict in verdicts:
                collector.add(case, verdict)
        else:
            verdicts, taken[suite.id] = look_by_look(suite, plan, verdicts, collector, references, seed)
        asked[suite.id] = len(verdicts)
        stats.append(row_of(suite, verdicts))
    decision = decide(
        collector, DecisionEvidence(stats=stats, references=references, looks=taken), np.random.default_rng(seed)
    )
    return Judged(
        outcome=decision.outcome,
        gates={gate.id.split("/")[0]: gate.decision for gate in decision.gates},
        asked=asked,
        looks=taken,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """``asked``: samples by suite."""

    outcome: Outcome
    gates: dict[str, Outcome]
    asked: dict[str, int]
    looks: dict[str, InterimAnalysis]


def look_by_look(
    suite: Simulated,
    plan: InterimPlan,
    verdicts: list[tuple[Case, Verdict]],
    collector: Collector,
    references: Mapping[str, list[ReferenceRun]],
    seed: int,
) -> tuple[list[tuple[Case, Verdict]], InterimAnalysis]:
    """What was asked of a suite, and the look that decides it: the product's order, looks and decisions."""
    known = {(verdict.case, verdict.sample): verdict for _, verdict in verdicts}
    seen: list[tuple[Case, Verdict]] = []
    last = len(plan.parts)
    for number in range(1, last):
        for case in plan.order(number - 1):
            seen.append((case, known[case.id, case.sample]))
            collector.add(*seen[-1])
        look = InterimAnalysis(number=number, fractions=plan.fractions, planned=plan.planned)
        evidence = DecisionEvidence(references=references, looks={suite.id: look})
        if (
            decide_look([row_of(suite, seen)], collector, evidence, np.random.default_rng(seed)).decision
            is not Outcome.INCONCLUSIVE
        ):
            return seen, look
    for case in plan.order(last - 1):
        seen.append((case, known[case.id, case.sample]))
        collector.add(*seen[-1])
    return seen, InterimAnalysis(number=last, fractions=plan.fractions, planned=plan.planned, stopped=False)


def planned_looks(suites: list[Simulated], policy: Policy, rng: np.random.Generator) -> dict[str, InterimPlan]:
    """For the suites that can be looked at: those whose gate is no F1."""
    found = {}
    for suite in suites:
        item = item_of(suite)
        entry = policy.benchmark_for(suite.id, "", primary=True)
        if entry is not None and entry.method != "f1":
            found[suite.id] = plan_looks(item, policy.looks, rng)
    return found


def item_of(suite: Simulated) -> PlannedSuite:
    real = load_suite(suite.id)
    context = Context(model="m", profile=load_profile("kimi-k3"), settings=Settings(samples=suite.samples))
    cases = [case for case, verdict in vendor_run(suite, suite.p, np.random.default_rng(0)) if verdict.sample == 0]
    return PlannedSuite(
        suite=real,
        context=context,
        cases=cases,
        samples={case.id: suite.samples for case in cases},
        prompt_tokens=0,
        completion_tokens=0,
    )


def early(rng: np.random.Generator, runs: int) -> list[Row]:
    """Five O'Brien-Fleming looks at OCRBench against one at the end, by the functions that a run with ``--early-stop``
    calls.
    """
    margin = _margin("ocrbench")
    policy = quality_only("release")
    p = ocr_questions(rng)
    suites = [Simulated(id="ocrbench", p=p, samples=1, draw=binary)]
    looks = planned_looks(suites, policy, rng)
    design = Design(n=OCR_N, sigma2=float((p * (1 - p)).mean()))
    bad = margin + failing_difference(design, margin, alpha=ALPHA, power=0.95)

    def simulate(vendor: Floats) -> tuple[float, float, float, float]:
        found = [judge(policy, suites, {"ocrbench": vendor}, rng, looks=looks) for _ in range(runs)]
        split = sum(one.looks["ocrbench"].stopped and one.outcome is Outcome.INCONCLUSIVE for one in found)
        shares = [sum(one.outcome is outcome for one in found) / runs for outcome in (Outcome.PASS, Outcome.FAIL)]
        return shares[0], shares[1], 1 - sum(one.asked["ocrbench"] for one in found) / runs / OCR_N, split

    passed, failed, saved, split = simulate(p)
    at_margin, _, _, at_margin_split = simulate(spread(p, margin, rng))
    _, caught, saved_bad, bad_split = simulate(spread(p, bad, rng))
    return [
        at_least("five looks: identical vendor passes", passed, 0.95),
        at_most("five looks: identical vendor fails", failed, 0.01),
        at_least("five looks: questions saved, identical vendor", saved, 0.20),
        at_most("five looks: vendor at the margin passes", at_margin, 0.05, runs),
        at_least(f"five looks: vendor {100 * bad:.2f} points worse fails", caught, 0.95, runs),
        at_least("five looks: questions saved, that vendor", saved_bad, 0.01),
        at_most(
            "runs that a look ended and the end of the run decides otherwise", split + at_margin_split + bad_split, 0
        ),
    ]


def quality_only(name: str) -> Policy:
    """The contract is not simulated: what the policy requires of it is left out, the margins stay."""
    policy = load_policy(name)
    return policy.model_copy(update={"required": type(policy.required)()})


def whole(rng: np.random.Generator, runs: int) -> list[Row]:
    policy = quality_only("release")
    suites = release_suites(rng)
    looks = planned_looks(suites, policy, rng)
    rows = []
    for title, plans in (("release", None), ("release, early stop", looks)):
        found = [judge(policy, suites, {}, rng, looks=plans) for _ in range(runs)]
        for suite in suites:
            rows.append(
                shown(
                    f"{title}: {suite.id} passes an identical vendor",
                    sum(one.gates[suite.id] is Outcome.PASS for one in found) / runs,
                )
            )
        passed = sum(one.outcome is Outcome.PASS for one in found) / runs
        failed = sum(one.outcome is Outcome.FAIL for one in found) / runs
        rows.append(at_least(f"{title}: whole policy passes an identical vendor", passed, 0.90))
        rows.append(at_most(f"{title}: whole policy fails an identical vendor", failed, 0.05))
        if plans:
            planned = sum(plan.planned for plan in plans.values())
            asked = sum(one.asked[suite] for one in found for suite in plans) / runs
            rows.append(
                at_least(f"{title}: samples saved where looks are taken, identical vendor", 1 - asked / planned, 0.20)
            )
    broken = {s.id: spread(s.p, 0.06, rng) for s in suites if s.id == "ocrbench"}
    few = max(10, runs // 4)
    caught = sum(judge(policy, suites, broken, rng).outcome is Outcome.FAIL for _ in range(few)) / few
    rows.append(at_least("release: OCRBench 6 points worse fails the whole policy", caught, 0.95))
    return rows


def nightly(rng: np.random.Generator, runs: int) -> list[Row]:
    """The nightly policy at the nightly tier's numbers of questions (BEAM: eight conversations), on nights on which
    nothing changed.
    """
    policy = quality_only("nightly")
    suites = [
        Simulated(id="ocrbench", p=ocr_questions(rng)[:200], samples=1, draw=binary),
        Simulated(id="mmmu_pro", p=bimodal(0.82, 0.1476 * 0.2, 60, rng), samples=1, draw=binary),
        Simulated(id="aime2025", p=bimodal(0.9, 0.07, 30, rng), samples=4, draw=binary, key="correct"),
        Simulated(
            id="toolcall", p=bimodal(0.55, 0.2475 * 0.4, 500, rng), samples=1, draw=binary, key="triggered", runs=5
        ),
        Simulated(id="swebench", p=bimodal(0.65, 0.2275 * 0.2, 10, rng), samples=1, draw=binary),
        Simulated(id="beam", p=bimodal(0.31, 0.05, 160, rng), samples=1, draw=graded),
    ]
    found = [judge(policy, suites, {}, rng) for _ in range(runs)]
    rows = [
        shown(
            f"nightly: {s.id} passes an unchanged vendor", sum(one.gates[s.id] is Outcome.PASS for one in found) / runs
        )
        for s in suites
    ]
    rows.append(
        at_least(
            "nightly: whole policy passes an unchanged vendor",
            sum(one.outcome is Outcome.PASS for one in found) / runs,
            0.90,
            runs,
        )
    )
    rows.append(at_most("nightly: false alarms", sum(one.outcome is Outcome.FAIL for one in found) / runs, 0.01, runs))
    return rows


def conversations_lost(p: Floats, loss: float, rng: np.random.Generator) -> Floats:
    """BEAM: whole conversations of 20 questions lose everything, the last one a part."""
    out = p.copy()
    for start in rng.permutation(np.arange(0, len(p), 20)):
        left = (loss - float(p.mean() - out.mean())) * len(p)
        if left <= 1e-9:
            break
        part = out[start : start + 20]
        out[start : start + 20] = part * max(0.0, 1 - left / part.sum())
    return out


def instances_lost(p: Floats, loss: float, rng: np.random.Generator) -> Floats:
    """SWE: whole instances in a random order, until the loss is reached: nobody loses a part of one."""
    out = p.copy()
    for i in rng.permutation(len(p)):
        if p.mean() - out.mean() >= loss - 1e-12:
            break
        out[i] = 0.0
    return out


def rerun_suites(
    rng: np.random.Generator,
) -> list[tuple[Simulated, Callable[[Floats, float, np.random.Generator], Floats]]]:
    """The nightly tier's regression suites, with how each loses. SWE: nine instances that were always solved and one in
    two minds.
    """
    nine = np.array([1.0] * 9 + [0.5])
    return [
        (Simulated(id="ocrbench", p=ocr_questions(rng)[:200], samples=1, draw=binary), concentrated),
        (Simulated(id="mmmu_pro", p=bimodal(0.82, 0.1476 * 0.2, 60, rng), samples=1, draw=binary), concentrated),
        (Simulated(id="aime2025", p=bimodal(0.9, 0.07, 30, rng), samples=4, draw=binary, key="correct"), concentrated),
        (Simulated(id="swebench", p=nine, samples=1, draw=binary), instances_lost),
        (Simulated(id="beam", p=bimodal(0.31, 0.05, 160, rng), samples=1, draw=graded), conversations_lost),
    ]


def regression(rng: np.random.Generator, runs: int) -> list[Row]:
    """Each regression gate of ``nightly`` alone: an unchanged vendor, the very same answers, and a vendor that lost
    what ``detect`` says.
    """
    policy = quality_only("nightly")
    counts: dict[tuple[str, str], list[Outcome]] = {}
    for _ in range(runs):
        for suite, lose in rerun_suites(rng):
            entry = policy.benchmark_for(suite.id, "", primary=True)
            if entry is None or not entry.detect:
                raise RuntimeError(f"nightly states no loss for {suite.id}")
            worse = lose(suite.p, entry.detect, rng)
            for title, p in (("unchanged", suite.p), (f"{100 * entry.detect:g} points lost", worse)):
                counts.setdefault((suite.id, title), []).append(
                    judge(policy, [suite], {suite.id: p}, rng).gates[suite.id]
                )
            # sure of every answer: a rerun repeats it
            still = replace(suite, p=np.round(suite.p))
            counts.setdefault((suite.id, "same answers"), []).append(judge(policy, [still], {}, rng).gates[suite.id])
    rows = []
    for (suite, title), found in counts.items():
        passed, failed = (sum(one is outcome for one in found) / runs for outcome in (Outcome.PASS, Outcome.FAIL))
        name = f"regression: {suite}, {title}"
        if title == "unchanged":
            rows += [
                at_least(f"{name}: passes", passed, 0.95, runs),
                at_most(f"{name}: fails", failed, policy.alpha, runs),
            ]
        elif title == "same answers":
            rows.append(at_least(f"{name}: passes", passed, 1.0))
        else:
            rows += [at_most(f"{name}: passes", passed, 0.01), at_least(f"{name}: fails", failed, policy.power)]
    return rows


# --- the error rate of the exact sum ----------------------------------------------------------------


def interval(rate: float, runs: int) -> str:
    """The Monte-Carlo interval of a simulated rate, 95 %."""
    low, high = clopper_pearson(round(rate * runs), runs).pair
    return f"{100 * low:.2f} to {100 * high:.2f} %"


#: worlds of fresh questions in which a vendor lies exactly at the margin
WORLDS = ("perfect reference", "every question .9", "loss spread", "questions lost")


def cells_of(world: str, margin: float, references: int) -> Floats:
    """The chances of vendor less mean of ``references``, in steps of one part of so many, from -1 to 1."""
    share = 0.2
    p = np.asarray(scipy.stats.beta.ppf((np.arange(4000) + 0.5) / 4000, 0.9 * share, 0.1 * share))
    if world == "perfect reference":
        p = np.ones(1)
    elif world == "every question .9":
        p = np.full(1, 0.9)
    lost = margin / float(p.mean())
    vendor = {"questions lost": [(lost, 0 * p), (1 - lost, p)], "loss spread": [(1.0, p * (1 - lost))]}.get(
        world, [(1.0, p - margin)]
    )
    right = scipy.stats.binom.pmf(np.arange(references + 1)[:, None], references, p)
    chances = np.zeros(2 * references + 1)
    for weight, v in vendor:
        chances[references:] += weight * (right * v).mean(axis=1)[::-1]
        chances[: references + 1] += weight * (right * (1 - v)).mean(axis=1)[::-1]
    return chances / chances.sum()


def exact_sum(rng: np.random.Generator, runs: int) -> list[Row]:
    """How often a vendor exactly at the margin passes, by number of questions, margin and references: the worst world.

    Once at the end, and at five looks, passing at the first whose bound is reached.
    """
    bounds = obrien_fleming(ALPHA, equal_looks(5))
    rows = []
    for references in (1, 2, 3, 5):
        for margin in (0.02, 0.03, 0.05):
            for n in (20, 52, 87, 200, 220, 500, 1000, 2000):
                fixed, looked = {}, {}
                for world in WORLDS:
                    fixed[world], looked[world] = _passes(world, n, margin, references, bounds, runs, rng)
                for title, found in (("at the end", fixed), ("five looks", looked)):
                    world = max(found, key=lambda name: found[name])
                    name = f"passes at the margin {margin:g}, n {n}, {references} reference(s), {title}: {world}"
                    rows.append(at_most(f"{name} ({interval(found[world], runs)})", found[world], 1.2 * ALPHA))
    return rows


def _passes(
    world: str, n: int, margin: float, references: int, bounds: tuple[float, ...], runs: int, rng: np.random.Generator
) -> tuple[float, float]:
    chances = cells_of(world, margin, references)
    steps = np.arange(-references, references + 1, dtype=np.float64)
    parts = np.diff([round(n * number / len(bounds)) for number in range(len(bounds) + 1)])
    counts = np.zeros((runs, len(steps)))
    passed = np.zeros(runs, dtype=bool)
    at_end = 0.0
    for part, bound in zip(parts, bounds, strict=True):
        counts = counts + rng.multinomial(part, chances, runs)
        tables, which = np.unique(counts, axis=0, return_inverse=True)
        p = mean_p(tables, steps, references, -margin)[which.reshape(-1)]
        passed |= p <= scipy.stats.norm.sf(bound)
        at_end = float((p <= ALPHA).mean())
    return at_end, float(passed.mean())


# --- what the plan says, and what happens -----------------------------------------------------------

#: questions, samples and groups by tier
TIERS = {
    "smoke": {"ocrbench": (10, 1, 10), "mmmu_pro": (4, 1, 4), "aime2025": (2, 32, 2), "beam": (20, 1, 1)},
    "fixture": {"ocrbench": (22, 1, 22), "mmmu_pro": (20, 1, 20), "swebench": (6, 1, 6), "beam": (40, 1, 2)},
    "nightly": {
        "ocrbench": (200, 1, 200),
        "mmmu_pro": (60, 1, 60),
        "aime2025": (30, 4, 30),
        "swebench": (10, 1, 5),
        "beam": (160, 1, 8),
    },
    "full": {
        "ocrbench": (1000, 1, 1000),
        "mmmu_pro": (1730, 1, 1730),
        "aime2025": (30, 32, 30),
        "swebench": (500, 1, 12),
        "beam": (700, 1, 35),
    },
}
MEANS = {"ocrbench": 0.89, "mmmu_pro": 0.82, "aime2025": 0.9, "swebench": 0.65, "beam": 0.31}


class Decided:
    """A gate's decisions on single right-or-wrong answers, which depend on the paired table alone. A parity gate's are
    those of its test; a regression gate is asked once for each table.
    """

    def __init__(self, policy: Policy, suite: Simulated) -> None:
        self.policy, self.suite = policy, suite
        self.known: dict[tuple[int, int, int], Outcome] = {}

    def on(self, vendor: NDArray[np.bool_], reference: NDArray[np.bool_]) -> NDArray[np.object_]:
        """For runs x questions of both sides."""
        gained, lost = (vendor & ~reference).sum(axis=1), (~vendor & reference).sum(axis=1)
        n = vendor.shape[1]
        entry = self.policy.benchmark_for(self.suite.id, "", primary=True)
        if entry is not None and entry.mode is BenchmarkMode.PARITY:
            return by_the_sum(gained, lost, n, entry.margin)
        both = (vendor & reference).sum(axis=1)
        if self.suite.id != "swebench":
            # how much both sides solve enters only where there may be too little to lose
            both[:] = round(float(np.median(both)))
            both = np.minimum(both, n - gained - lost)
        return np.array(
            [self._one(*(int(x) for x in table), n) for table in zip(both, gained, lost, strict=True)],
            dtype=object,
        )

    def _one(self, both: int, gained: int, lost: int, n: int) -> Outcome:
        if (both, gained, lost) not in self.known:
            neither = n - both - gained - lost
            mine = np.repeat([1.0, 1.0, 0.0, 0.0], [both, gained, lost, neither])[:, None]
            theirs = np.repeat([1.0, 0.0, 1.0, 0.0], [both, gained, lost, neither])[:, None]
            self.known[both, gained, lost] = scored(self.policy, self.suite, mine, [theirs])
        return self.known[both, gained, lost]


def by_the_sum(gained: Floats, lost: Floats, n: int, margin: float) -> NDArray[np.object_]:
    """What ``_three_way`` decides of tables without open samples."""
    tables, which = np.unique(np.stack([lost, n - gained - lost, gained], axis=1), axis=0, return_inverse=True)
    steps = np.array([-1.0, 0.0, 1.0])
    passes = mean_p(tables.astype(np.float64), steps, 1, -margin) <= ALPHA
    fails = mean_p_below(tables.astype(np.float64), steps, 1, -margin) <= ALPHA
    offered = not too_few(n, margin, ALPHA, single=True)
    found = np.where(fails, Outcome.FAIL, np.where(passes & offered, Outcome.PASS, Outcome.INCONCLUSIVE))
    return np.asarray(found[which.reshape(-1)], dtype=object)


def scored(policy: Policy, suite: Simulated, vendor: Floats, references: list[Floats]) -> Outcome:
    """The gate of one suite, decided by the product on these scores (questions x samples)."""
    verdicts = verdicts_of(suite, vendor)
    collector = Collector(policy, [SuiteRun(id=suite.id, kind=SuiteKind.BENCHMARK)], date(2026, 1, 1))
    for case, verdict in verdicts:
        collector.add(case, verdict)
    runs = [reference_of(suite, scores, number) for number, scores in enumerate(references)]
    evidence = DecisionEvidence(references={suite.id: runs})
    found = decide_look([row_of(suite, verdicts)], collector, evidence, np.random.default_rng(0))
    return found.gates[0].decision if found.gates else Outcome.SKIP


def planned_suite(tier: str, name: str, rng: np.random.Generator) -> tuple[Simulated, Design]:
    n, samples, clusters = TIERS[tier][name]
    design = expected_design(name, cases=n, samples=samples, clusters=clusters, references=[]).design
    p = bimodal(MEANS[name], design.sigma2 if name != "beam" else 0.05, n, rng)
    return Simulated(
        id=name,
        p=p,
        samples=samples,
        draw=graded if name == "beam" else binary,
        key="correct" if name == "aime2025" else "score",
    ), design


def planned(rng: np.random.Generator, runs: int) -> list[Row]:
    """What ``kvv plan`` says of an identical vendor's chance to pass each gate, against simulated runs of fresh
    questions.
    """
    rows = []
    for tier, names in TIERS.items():
        for title in ("smoke", "release", "nightly"):
            policy = quality_only(title)
            for name in names:
                suite, design = planned_suite(tier, name, rng)
                if name == "beam":
                    # five rubric points: a fifth of the variance of right or wrong, within conversations of twenty
                    design = replace(design, sigma2=0.05 / 5)
                said = next(gate for gate in forecast(policy, {name: design}).gates if gate.suite == name)
                few = runs if suite.samples == 1 and name != "beam" else max(20, runs // 25)
                seen = _identical(policy, suite, few, rng)
                gap = abs(said.pass_chance - seen)
                # three points, and three Monte-Carlo standard errors where few runs were made
                room = 0.03 + 3 * (seen * (1 - seen) / few) ** 0.5
                text = f"tier {tier}, policy {title}, {name}: plan {said.pass_chance:.3f}, simulated {seen:.3f}"
                rows.append(Row(name=f"{text} ({interval(seen, few)})", measured=gap, asked="<= .03", ok=gap <= room))
    return rows


def _identical(policy: Policy, suite: Simulated, runs: int, rng: np.random.Generator) -> float:
    """The share of runs of an identical vendor that pass, with other questions in each."""
    decided, passed, done = Decided(policy, suite), 0, 0
    noise = 0.05 if suite.draw is graded else _noise(suite)
    while done < runs:
        many = min(200, runs - done)
        if suite.samples == 1 and suite.draw is binary:
            p = bimodal(MEANS[suite.id], noise, many * len(suite.p), rng).reshape(many, -1)
            found = decided.on(rng.random(p.shape) < p, rng.random(p.shape) < p)
            passed += int((found == Outcome.PASS).sum())
        else:
            for _ in range(many):
                p = bimodal(MEANS[suite.id], noise, len(suite.p), rng)
                one = scored(policy, suite, drawn(suite, p, rng), [drawn(suite, p, rng)])
                passed += one is Outcome.PASS
        done += many
    return passed / runs


def _noise(suite: Simulated) -> float:
    return expected_design(suite.id, cases=len(suite.p), samples=1, clusters=len(suite.p), references=[]).design.sigma2


# --- nights ------------------------------------------------------------------------------------------


def nights(rng: np.random.Generator, runs: int) -> list[Row]:
    """So many nights of ``nightly`` with an unchanged vendor, the run and the second measurement of ``--confirm-now``
    against one baseline; and nights after OCRBench lost 5 points. AIME and BEAM: a tenth as many, drawn again for the
    others.
    """
    policy = quality_only("nightly")
    first, both, passes = np.zeros(runs, bool), np.zeros(runs, bool), np.ones(runs, bool)
    rows = []
    for suite, _ in rerun_suites(rng):
        one, two = _two_runs(policy, suite, suite.p, runs, rng)
        fails = one == Outcome.FAIL
        first |= fails
        both |= fails & (two == Outcome.FAIL)
        passes &= one == Outcome.PASS
        rows.append(shown(f"night: {suite.id} passes an unchanged vendor", float((one == Outcome.PASS).mean())))
        rows.append(shown(f"night: {suite.id} fails an unchanged vendor", float(fails.mean())))
        if suite.id == "ocrbench":
            lost, again = _two_runs(policy, suite, concentrated(suite.p, 0.05, rng), runs, rng)
            seen = (lost == Outcome.FAIL) & (again == Outcome.FAIL)
            rows.append(shown("night: OCRBench 5 points worse fails", float((lost == Outcome.FAIL).mean())))
            rows.append(shown("night: OCRBench 5 points worse fails twice", float(seen.mean())))
            rows.append(shown("night: OCRBench 5 points worse passes", float((lost == Outcome.PASS).mean())))
    rates = {"any gate fails": first, "any gate fails and repeats it": both}
    rows.append(at_least("night: an unchanged vendor passes all five gates", float(passes.mean()), 0.95))
    for name, found in rates.items():
        rate = float(found.mean())
        high = clopper_pearson(int(found.sum()), runs, 0.9).high
        rows.append(at_most(f"night: {name} ({interval(rate, runs)}), upper 95 % bound", high, 0.013))
        expected = 70 * 30 * rate
        bound = 70 * 30 * high
        rows.append(shown(f"70 endpoints, 30 nights: {name}, alarms expected (at most {bound:.2f})", expected))
    return rows


def releases(rng: np.random.Generator, runs: int) -> list[Row]:
    """So many runs of ``release`` with an identical vendor, and with one that lost 5 points of OCRBench. AIME and BEAM
    a tenth as many, tool calls a fiftieth, drawn again for the others.
    """
    policy = quality_only("release")
    rows = []
    passes, fails = np.ones(runs, bool), np.zeros(runs, bool)
    for suite in release_suites(rng):
        if suite.runs > 1:
            few = [judge(policy, [suite], {}, rng).gates[suite.id] for _ in range(max(20, runs // 50))]
            one = np.array(few, dtype=object)[rng.integers(0, len(few), runs)]
        else:
            one, _ = _two_runs(policy, suite, suite.p, runs, rng)
        passes &= one == Outcome.PASS
        fails |= one == Outcome.FAIL
        rows.append(shown(f"release: {suite.id} passes an identical vendor", float((one == Outcome.PASS).mean())))
        if suite.id == "ocrbench":
            for title, lose in (("spread over all questions", spread), ("of whole questions", concentrated)):
                lost, _ = _two_runs(policy, suite, lose(suite.p, 0.05, rng), runs, rng)
                rate = float((lost == Outcome.FAIL).mean())
                rows.append(at_least(f"release: OCRBench 5 points worse fails, {title}", rate, 0.8))
                rate = float((lost == Outcome.PASS).mean())
                rows.append(at_most(f"release: OCRBench 5 points worse passes, {title}", rate, 0.0))
    share = float(passes.mean())
    rows.append(at_least(f"release: an identical vendor passes every gate ({interval(share, runs)})", share, 0.95))
    share = float(fails.mean())
    rows.append(at_most(f"release: any gate fails an identical vendor ({interval(share, runs)})", share, 0.01))
    return rows


def _two_runs(
    policy: Policy, suite: Simulated, p: Floats, runs: int, rng: np.random.Generator
) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Decisions of two runs a night against one baseline."""
    if suite.samples == 1 and suite.draw is binary:
        decided = Decided(policy, suite)
        parts = []
        for size in np.diff([*range(0, runs, 1000), runs]):
            base = rng.random((size, len(p))) < suite.p
            parts.append([decided.on(rng.random(base.shape) < p, base) for _ in range(2)])
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    found = []
    for _ in range(max(20, runs // 10)):
        base = drawn(suite, suite.p, rng)
        found.append([scored(policy, suite, drawn(suite, p, rng), [base]) for _ in range(2)])
    again = rng.integers(0, len(found), runs)
    one, two = (np.array([pair[side] for pair in found], dtype=object)[again] for side in range(2))
    return one, two


def _margin(suite: str) -> float:
    entry = load_policy("release").benchmark_for(suite, "", primary=True)
    if entry is None:
        raise RuntimeError(f"release names no margin for {suite}")
    return entry.margin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--only", default="", metavar="TITLE", help="the part of this title alone")
    parser.add_argument("--seed", type=int, default=6)
    arguments = parser.parse_args()
    scale = 10 if arguments.quick else 1
    short = False
    for title, measure, runs in (
        ("one sample a side", single, 4000),
        ("early stopping", early, 400),
        ("repeats", repeats, 2000),
        ("whole policy", whole, 200),
        ("nightly policy", nightly, 200),
        ("regression gates", regression, 1000),
        ("false passes of the exact sum", exact_sum, 10_000),
        ("what the plan says", planned, 10_000),
        ("releases", releases, 10_000),
        ("nights", nights, 10_000),
    ):
        if arguments.only not in ("", title):
            continue
        began = time.perf_counter()
        rows = measure(np.random.default_rng([arguments.seed, runs]), runs // scale)
        print(f"\n{title}: {runs // scale} runs, {time.perf_counter() - began:.0f} s")
        for row in rows:
            print(f"  {'ok   ' if row.ok else 'SHORT'} {row.measured:7.4f}  {row.asked:<15} {row.name}")
            short = short or not row.ok
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
