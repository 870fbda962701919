"""Report rows of ``swebench``: the share resolved by our rule and by the official one, with what the agent did and why
it ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any
from urllib.parse import quote

from kvv.cases.suite import Context
from kvv.core import Case, Outcome, Stat, Verdict
from kvv.stats.metrics import GroupTally, MeanTally, Metric
from kvv.suites.swebench.agent import AGENT
from kvv.suites.swebench.instance import GRADER

RULES: Mapping[str, str] = {
    "resolved": (
        "all FAIL_TO_PASS and PASS_TO_PASS tests succeed, and the patch leaves the test runner's configuration alone"
    ),
    "official_resolved": "as the official harness: all FAIL_TO_PASS and PASS_TO_PASS tests succeed",
    "resolved_but_known_bad": "as resolved, without the instances that are known to be broken",
}

#: ends of the agent that are its own limits, not the work of the model
AGENTS_ENDS = frozenset(
    {
        *("step-limit", "cost-limit", "time-limit", "command-limit", "loop", "format-errors", "length-cut"),
        *("submission-too-long", "patch-too-long", "collect-failed", "agent-failed"),
    }
)
#: a sample's page in its folder
PAGE = "trajectory.html"
#: facts that the list of instances shows
_OF_INSTANCE = ("exit", "steps", "commands", "prompt_tokens", "completion_tokens", "cost", "applied")
#: by whether another program's agent worked
_PROMPTS = {
    False: (
        "mini-swe-agent's protocol and limits (250 steps, $3, 60 s a command, observations cut to 5000 + 5000"
        " characters) in our own words"
    ),
    True: "the agent's own, with its published configuration",
}

_MEANS = (
    "steps",
    "commands",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "cost",
    "model_s",
    "command_s",
    "test_s",
)


@dataclass(slots=True)
class InstanceTally:
    """What the rows say beside their shares."""

    exits: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    ended_by: dict[str, Counter[str]] = field(
        default_factory=lambda: {name: Counter() for name in ("vendor", "agent", "infrastructure")}
    )
    environments: Counter[str] = field(default_factory=Counter)
    applied: Counter[str] = field(default_factory=Counter)
    sums: dict[str, list[float]] = field(default_factory=dict)
    known_bad: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    agents: set[str] = field(default_factory=set)
    modes: set[str] = field(default_factory=set)
    graders: set[str] = field(default_factory=set)
    tampered: int = 0
    emulated: int = 0
    empty: int = 0
    own: int = 0
    tasks: int = 0
    n: int = 0

    def add(self, case: Case, verdict: Verdict) -> None:
        facts = verdict.facts
        if verdict.outcome is Outcome.SKIP:
            self.skipped[case.inputs["instance"]] = verdict.detail
            return
        self.n += 1
        self.own += "bundle" in case.inputs["sandbox"]
        self.tasks += case.inputs["commits"]
        self.agents.add(case.inputs["agent"])
        self.modes.add(case.inputs["mode"])
        self.graders.add(case.inputs.get("grader", GRADER))
        self.reasons[verdict.reason or "resolved"] += 1
        if verdict.outcome is not Outcome.PASS:
            self.ended_by[ended_by(verdict)][verdict.reason] += 1
        if "environment" in facts:
            self.environments[facts["environment"]] += 1
        if "exit" in facts:
            self.exits[facts["exit"]] += 1
        if facts.get("applied"):
            self.applied[facts["applied"]] += 1
        self.tampered += bool(facts.get("tampered"))
        self.emulated += bool(facts.get("emulated"))
        self.empty += "patch" in facts and not facts["patch"].strip()
        for name in _MEANS:
            if facts.get(name) is not None:
                self.sums.setdefault(name, []).append(float(facts[name]))
        if case.inputs["known_bad"]:
            self.known_bad[case.inputs["instance"]] = {
                "source": case.inputs["known_bad"],
                "outcome": verdict.outcome.value,
                "reason": verdict.reason,
            }

    def table(self) -> dict[str, Any]:
        return {
            "exits": dict(sorted(self.exits.items())),
            "reasons": dict(sorted(self.reasons.items())),
            "unresolved_by": {name: dict(sorted(found.items())) for name, found in self.ended_by.items()},
            "environments": dict(sorted(self.environments.items())),
            "patch_applied_by": dict(sorted(self.applied.items())),
            "patch_apply_failures": self.reasons["patch-apply-failed"],
            "empty_patches": self.empty,
            "tampered": self.tampered,
            "emulated": self.emulated,
            "mean": {name: fmean(values) for name, values in self.sums.items()},
            "cost": sum(self.sums.get("cost", [0.0])),
            "known_bad": dict(sorted(self.known_bad.items())),
            "skipped": dict(sorted(self.skipped.items())),
        }


def ended_by(verdict: Verdict) -> str:
    """Whose an unresolved sample is: the ``vendor``'s, whose model or endpoint it was, the ``agent``'s, whose limit
    ended it, or the ``infrastructure``'s, which leaves it undecided.
    """
    if verdict.outcome is not Outcome.FAIL:
        return "infrastructure"
    return "agent" if verdict.reason in AGENTS_ENDS else "vendor"


def folder_of(case: Case, model: str) -> str:
    """Of one sample's files, in the run's folder, as the official harness lays them out."""
    place = quote(model.replace("/", "__"), safe="")
    return f"swebench/logs{f'.{case.sample}' if case.sample else ''}/{place}/{quote(case.inputs['instance'], safe='')}"


def has_page(verdict: Verdict) -> bool:
    """Whether the agent did anything that a page could tell."""
    return "exit" in verdict.facts


def instance_line(case: Case, verdict: Verdict, model: str) -> dict[str, Any]:
    """One sample for the report's list."""
    facts = verdict.facts
    line = {
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        **{name: facts.get(name) for name in _OF_INSTANCE},
    }
    return line | ({"page": f"{folder_of(case, model)}/{PAGE}"} if has_page(verdict) else {})


def metrics(suite: str, version: str, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
    """Two rows, and a third where known-bad instances were asked."""
    resolved = MeanTally(suite, Metric(metric="resolved", key="resolved", primary=True, kvv_failures="zero"))
    official = MeanTally(suite, Metric(metric="official_resolved", key="official_resolved", kvv_failures="zero"))
    sound = MeanTally(suite, Metric(metric="resolved_but_known_bad", key="resolved", kvv_failures="zero"))
    tally, repositories = InstanceTally(), GroupTally()
    instances: dict[str, dict[str, Any]] = {}
    for case, verdict in verdicts:
        tally.add(case, verdict)
        instances[f"{case.inputs['instance']}{f'#{case.sample}' if case.sample else ''}"] = instance_line(
            case, verdict, context.model
        )
        resolved.add(case, verdict)
        official.add(case, verdict)
        if not case.inputs["known_bad"]:
            sound.add(case, verdict)
        if verdict.outcome is not Outcome.SKIP:
            concluded = verdict.outcome in (Outcome.PASS, Outcome.FAIL)
            repositories.add(case.inputs["repo"], verdict.values.get("resolved", 0.0) if concluded else None)
    facts = comparability(version, tally, context)
    first = {"rule": RULES["resolved"], "repositories": repositories.table(), **tally.table(), "instances": instances}
    found = [
        resolved.stat(breakdown=first, comparability=facts),
        official.stat(breakdown={"rule": RULES["official_resolved"]}, comparability=facts),
    ]
    if tally.known_bad:
        found.append(sound.stat(breakdown={"rule": RULES["resolved_but_known_bad"]}, comparability=facts))
    return found


def comparability(version: str, tally: InstanceTally, context: Context) -> dict[str, Any]:
    """What a reader needs to set these rows beside another run's."""
    dataset, settings = context.dataset, context.settings
    own = (
        f"{tally.own} of {tally.n} instances are our own small ones: not comparable with SWE-bench percentages"
        if tally.own
        else ""
    )
    return {
        "data_revision": dataset.revision if dataset else None,
        "data_sha256": dataset.sha256 if dataset else None,
        # of tasks in Harbor's form: DeepSWE's percentages and SWE-bench's are of different questions
        "benchmark": (
            "SWE-bench" if not tally.tasks else "DeepSWE" if tally.tasks == tally.n else "SWE-bench and DeepSWE"
        ),
        "instances": own or "as the data set has them",
        "agent": ", ".join(sorted(f"{agent} ({mode})" for agent in tally.agents for mode in tally.modes)),
        "agent_mode": ", ".join(sorted(tally.modes)),
        "prompt": _PROMPTS[any(not agent.startswith(f"{AGENT} ") for agent in tally.agents)],
        "sampling": {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_tokens": settings.max_tokens,
            "stream": settings.stream,
            "samples": settings.samples,
        },
        "preset": context.preset,
        "grader": ", ".join(sorted(tally.graders)),
        "scorer_version": version,
        "failures_in_denominator": (
            "a failed request or sandbox is in n_planned and in both bounds, not in the value; "
            "an empty patch, a patch that does not apply and a test time-out count as unresolved"
        ),
    }
