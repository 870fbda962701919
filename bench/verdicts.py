"""A/A and power table of the verdict: simulated vendors against the shipped margins.

    python bench/verdicts.py [--quick] [--seed N]

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
from numpy.typing import NDArray

from kvv.cases.suite import Context, ReferenceRun, Settings, SuiteKind, load_suite
from kvv.core import Area, Case, Level, Outcome, Stat, Verdict
from kvv.decision import Collector, DecisionEvidence, InterimAnalysis, SuiteRun, decide, decide_look
from kvv.planning.interim_plan import InterimPlan, plan_looks
from kvv.planning.plan import PlannedSuite
from kvv.profiles.policy import Policy, load_policy
from kvv.profiles.profile import load_profile
from kvv.stats import Design, bca_interval, failing_difference, tango_limits
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


def official(suite: Simulated, rng: np.random.Generator) -> list[ReferenceRun]:
    runs = []
    for number in range(suite.runs):
        scores = suite.draw(np.repeat(suite.p[:, None], suite.samples, axis=1), rng)
        cases = {f"{suite.id}/{i}": [{suite.key: float(x)} for x in row] for i, row in enumerate(scores)}
        runs.append(ReferenceRun(name=f"official {number}", model="m", cases=cases))
    return runs


def vendor_run(suite: Simulated, p: Floats, rng: np.random.Generator) -> list[tuple[Case, Verdict]]:
    scores = suite.draw(np.repeat(p[:, None], suite.samples, axis=1), rng)
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


def _margin(suite: str) -> float:
    entry = load_policy("release").benchmark_for(suite, "", primary=True)
    if entry is None:
        raise RuntimeError(f"release names no margin for {suite}")
    return entry.margin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
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
    ):
        began = time.perf_counter()
        rows = measure(np.random.default_rng([arguments.seed, runs]), runs // scale)
        print(f"\n{title}: {runs // scale} runs, {time.perf_counter() - began:.0f} s")
        for row in rows:
            print(f"  {'ok   ' if row.ok else 'SHORT'} {row.measured:7.4f}  {row.asked:<15} {row.name}")
            short = short or not row.ok
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
