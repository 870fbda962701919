"""Stopping early: which suites of a run are looked at, after which of their cases, and what a store remembers of it.
Pure.

A look covers the first part of the suite's own seeded order, whole conversations and all samples of a question
together. None of it is left unanswered when the look is taken: long answers finish late and are more often wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from kvv.cases.suite import SuiteKind, overlap
from kvv.core import Case
from kvv.core.lazy import numpy as np
from kvv.decision import InterimAnalysis
from kvv.planning.config import ConfigError, RunConfig
from kvv.planning.plan import Plan, PlannedSuite, permute
from kvv.profiles.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimPlan:
    """``parts[k]`` are the cases asked between look k and look k + 1, in order; ``fractions[k]`` the share of all
    ``planned`` samples that is in hand after it."""

    suite: str
    parts: tuple[tuple[Case, ...], ...]
    samples: Mapping[str, int]
    fractions: tuple[float, ...]
    planned: int

    def order(self, part: int) -> Iterator[Case]:
        """Every sample of one part, round by round."""
        cases = self.parts[part]
        for number in range(max((self.samples[case.id] for case in cases), default=0)):
            yield from (replace(case, sample=number) for case in cases if self.samples[case.id] > number)

    def covered(self, number: int) -> int:
        """Samples that look ``number``, from 1, covers."""
        return sum(self.samples[case.id] for part in self.parts[:number] for case in part)


def plan_looks(item: PlannedSuite, looks: int, generator: np.random.Generator) -> InterimPlan:
    """Look k of K comes after the first units that make k/K of the samples; units are conversations
    (``inputs["block"]``), else questions.

    Few or large units make fewer looks, at unequal shares.
    """
    ordered = permute(item.cases, generator)
    units = [list(unit) for _, unit in groupby(ordered, key=_unit)]
    sizes = [sum(item.samples[case.id] for case in unit) for unit in units]
    planned, done, ends = sum(sizes), 0, []
    for number, size in enumerate(sizes, start=1):
        before, done = done, done + size
        if any(before < k * planned / looks - 1e-9 <= done for k in range(1, looks + 1)):
            ends.append((number, done / planned))
    starts = [0, *(number for number, _ in ends)]
    parts = tuple(tuple(case for unit in units[a:b] for case in unit) for a, b in pairwise(starts))
    return InterimPlan(
        suite=item.suite.id,
        parts=parts,
        samples=item.samples,
        fractions=tuple(share for _, share in ends),
        planned=planned,
    )


def _unit(case: Case) -> str:
    return str(case.inputs.get("block") or case.id)


def obstacle(item: PlannedSuite, policy: Policy) -> str:
    """Why a benchmark suite cannot be looked at before its end, "" where it can."""
    entries = [entry for entry in policy.benchmark if entry.suite == item.suite.id]
    references = [run for run in item.context.references if run.cases]
    if not entries:
        return f"the policy {policy.name} names no margin for it"
    if any(entry.method != "paired" for entry in entries):
        return "tool calls are judged against the official runs' own scatter, once"
    if not references:
        return "no per-case reference (--reference FILE)"
    known = {case for run in references for case in run.cases}
    share = overlap(known, {case.id for case in item.cases})
    if share < policy.min_paired:
        return f"its reference knows {100 * share:.0f} % of the cases, {100 * policy.min_paired:.0f} % are needed"
    return "" if len({_unit(case) for case in item.cases}) > 1 else "it has one question or conversation only"


def obstacles(plan: Plan, policy: Policy) -> dict[str, str]:
    """Benchmark suite -> why it runs on in full, "" where it is looked at."""
    return {
        item.suite.id: obstacle(item, policy)
        for item in plan.suites
        if item.suite.kind is SuiteKind.BENCHMARK and item.cases
    }


def check_early_stop(config: RunConfig, policy: Policy, plan: Plan) -> None:
    """ConfigError where ``--early-stop`` could stop nothing."""
    if config.shard:
        raise ConfigError("--early-stop: cannot stand beside --shard, a look is at the whole suite")
    if config.base_url is None:
        raise ConfigError("--early-stop: needs --base-url, our own endpoint's count is compared with every answer")
    if config.reference_base_url is not None:
        raise ConfigError(
            "--early-stop: cannot stand beside --reference-base-url, whose answers are whole only at the end; take"
            " --reference FILE"
        )
    if policy.looks < 2:
        raise ConfigError(
            f"--early-stop: the policy {policy.name} plans no looks (looks = 5 in a policy file plans five)"
        )
    found = obstacles(plan, policy)
    if not any(why == "" for why in found.values()):
        why = "; ".join(f"{suite}: {text}" for suite, text in found.items()) or "no benchmark is asked"
        raise ConfigError(f"--early-stop: no suite of this run can be looked at before its end ({why})")


def sentence(plan: Plan, policy: Policy) -> str:
    """What ``--early-stop`` will do, in one line."""
    found = obstacles(plan, policy)
    looked = ", ".join(suite for suite, why in found.items() if not why)
    full = ", ".join(f"{suite} ({why})" for suite, why in found.items() if why)
    return f"early stop: {looked} may end at one of {policy.looks} looks" + (f"; in full: {full}" if full else "")


# --- what a store remembers ------------------------------------------------------------------------


def read_interim_analyses(meta: Mapping[str, Any]) -> dict[str, InterimAnalysis]:
    """By suite the look that decides it: the one that stopped it, else its last."""
    return {
        suite: look_of(entry, entry["stopped"] or len(entry["fractions"]))
        for suite, entry in (meta.get("looks") or {}).items()
    }


def look_of(entry: Mapping[str, Any], number: int) -> InterimAnalysis:
    return InterimAnalysis(
        number=number, fractions=tuple(entry["fractions"]), planned=entry["planned"], stopped=bool(entry["stopped"])
    )


def stopped_suites(meta: Mapping[str, Any]) -> frozenset[str]:
    """Suites that a look ended: of them, what has no verdict was never part of the sample."""
    return frozenset(suite for suite, entry in (meta.get("looks") or {}).items() if entry["stopped"])


def begun(plans: Sequence[InterimPlan]) -> dict[str, dict[str, Any]]:
    """The record before the first look."""
    return {
        plan.suite: {"fractions": list(plan.fractions), "planned": plan.planned, "taken": [], "stopped": 0}
        for plan in plans
    }
