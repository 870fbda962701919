"""The verdict on a terminal: a block of plain lines, no colours, no control characters but the newline."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence

from kvv.core import Gate, Outcome, Stat
from kvv.core.exit_codes import ExitCode
from kvv.rendering.escape import percent, plain
from kvv.storage.view import Cause, CauseKind, RunView, early_end, shown_metric

__all__ = ["brief", "causes", "next_commands", "plain", "render"]

#: columns that text is wrapped to
WIDTH = 100
#: lines of one kind; the reports have the rest
LISTED = 12
#: causes, or gates, that -q names
REASONS = 4


def render(view: RunView) -> str:
    """The first line is the verdict and what it covers, then what is wrong; every line ends with a newline."""
    decision = view.decision
    lines = [plain(decision.headline, 1000)]
    facts = (
        view.endpoint.base_url,
        view.endpoint.model,
        f"profile {view.profile} ({view.surface})",
        f"policy {view.policy.name} {view.policy.sha256[:12]}",
    )
    lines += _wrapped("  ", " · ".join(plain(fact, 200) for fact in facts))
    lines += _trouble(view)
    if view.run.partial:
        lines.append("  partial: less than the planned sample was asked")
    lines += _causes(view)
    lines += _gates(decision.gates)
    lines += _rows(decision.stats)
    lines += _waivers(view)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def causes(view: RunView) -> str:
    """The verdict and what is wrong, nothing else."""
    lines = [plain(view.decision.headline, 1000), *_trouble(view), *_causes(view), ""]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def brief(view: RunView) -> str:
    """The verdict and, where something kept the run from one, what that is: all that `-q` shows."""
    lines = [plain(view.decision.headline, 1000), *_trouble(view)]
    told = [cause for cause in view.causes if cause.counts and cause.kind is not CauseKind.ENDPOINT]
    if told:
        lines += [f"  {view.explained}", *(f"  - {plain(_headed(cause), 300)}" for cause in told[:REASONS])]
        lines += [f"  - and {len(told) - REASONS} more"] if len(told) > REASONS else []
    elif not view.trouble:  # a dead endpoint's one sentence says it all; else the gates that kept a pass away
        lines += [f"  {plain(why, 300)}" for why in view.decision.why[:REASONS]]
    return "".join(f"{line}\n" for line in lines)


def next_commands(view: RunView, folder: str) -> list[tuple[str, str]]:
    """What to do after this run: two commands, each with why."""
    run = plain(shlex.quote(folder), 400)
    first = next((cause for cause in view.causes if cause.counts and (cause.example or cause.rules)), None)
    found = []
    if first and first.example:
        found.append(
            (f"kvv show {plain(shlex.quote(first.example), 300)} --run {run}", "the first cause: request, answer, curl")
        )
    elif first:
        found.append(
            (f"kvv show {run} --rule {plain(first.rules[0], 100)}", "the first cause: every answer it stands in")
        )
    if any(cause.kind in (CauseKind.ENDPOINT, CauseKind.OPEN) for cause in view.causes) and view.run.partial:
        found.append((f"kvv resume {run}", "asks what is missing"))
    if any(cause.counts and cause.kind in (CauseKind.CASES, CauseKind.RULE) for cause in view.causes):
        found.append((f"kvv run --last-failed {run}", "after a change: asks only what failed"))
    found += [(f"kvv view {run}", "looks at it in a browser"), (f"kvv gate {run}", "compares it with the baseline")]
    return found[:2]


def _trouble(view: RunView) -> list[str]:
    # a wrong key or address ends with exit code 2 beside INCONCLUSIVE: said here, or nobody knows why
    cause = "configuration (exit code 2): " if view.run.exit_code == ExitCode.USAGE else ""
    return [f"  {cause}{plain(view.trouble, 600)}"] if view.trouble else []


def _causes(view: RunView) -> list[str]:
    """Each cause in two or three lines: what, how often and where; what it was elsewhere; one case."""
    told = [cause for cause in view.causes if cause.counts and cause.kind is not CauseKind.ENDPOINT]
    lines = ["", *_wrapped("  ", view.explained)] if view.explained else []
    width = len(str(min(len(told), LISTED)))
    for number, cause in enumerate(told[:LISTED], start=1):
        lines += _wrapped(f"  {number:>{width}}. ", plain(_headed(cause), 400), " " * (width + 4))
        known = [f"{fault.id} {fault.where}" for fault in cause.faults[:3] if fault.where]
        if known:
            lines += _wrapped(" " * (width + 4), plain(f"known elsewhere: {'; '.join(known)}", 400))
        lines += [" " * (width + 4) + plain(cause.example or f"rule {', '.join(cause.rules)}", 200)]
    lines += [f"  ... and {len(told) - LISTED} more causes in the reports"] if len(told) > LISTED else []
    beside = [cause for cause in view.causes if not cause.counts]
    if beside:
        shown = [f"  - {plain(_headed(cause), 300)}" for cause in beside]
        lines += ["", "  Beside them, shown only:" if told else "  Shown only:", *_some(shown, LISTED // 2)]
    return lines


def _headed(cause: Cause) -> str:
    said = cause.title + (f" ({cause.detail})" if cause.detail else "")
    facts = ", ".join(filter(None, (cause.size, cause.where)))
    return f"{said}: {facts}" if facts else said


def _wrapped(first: str, text: str, then: str | None = None) -> list[str]:
    """Lines of a terminal of ordinary width; a word that is longer stays whole."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if then is None else then,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _gates(gates: Sequence[Gate]) -> list[str]:
    if not gates:
        return []
    width = min(40, max(len(g.id) for g in gates))
    order = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.SKIP)
    ranked = sorted(gates, key=lambda g: order.index(g.decision))
    lines = [f"  {g.decision.value.upper():<13}{plain(g.id, 80):<{width}}  {plain(_reason(g), 300)}" for g in ranked]
    return ["", *_some(lines, 4 * LISTED)]


def _reason(gate: Gate) -> str:
    """Without the list of cases: the causes above say which."""
    reason = re.sub(r" \([^()]*/[^()]*\)", "", gate.reason) if gate.id.startswith("contract/") else gate.reason
    return f"{'DEGRADED ' if gate.degraded else ''}{reason}"


def _rows(stats: Sequence[Stat]) -> list[str]:
    if not stats:
        return []
    lines = []
    for s in stats:
        interval = f"[{percent(s.interval[0])}, {percent(s.interval[1])}]" if s.interval else "[–]"
        n = f"n {s.n_concluded}/{s.n_planned}" + (f", {s.n_truncated} truncated" if s.n_truncated else "")
        n += f" ({early_end(s)})" if early_end(s) else ""
        bounds = f", bounds {percent(s.worst_case)}–{percent(s.best_case)}" if s.n_inconclusive else ""
        reference = (
            f", reference {percent(s.reference.value)} ({s.reference.kind}, n {s.reference.n})" if s.reference else ""
        )
        mark = "*" if s.primary else " "
        name = f"{plain(s.suite, 40)} {plain(shown_metric(s), 40)}"
        lines.append(f"  {mark} {name}: {percent(s.estimate)} {interval}, {n}{bounds}{plain(reference, 120)}")
    return ["", *_some(lines, 2 * LISTED)]


def _waivers(view: RunView) -> list[str]:
    lines = [
        f"  waiver {w.state}: {plain(w.case, 80)} ({plain(w.owner, 60)}, until {w.expires}): {plain(w.reason, 120)}"
        for w in view.decision.waivers
    ]
    return ["", *_some(lines, LISTED)] if lines else []


def _some(lines: Iterable[str], limit: int) -> list[str]:
    every = list(lines)
    return every if len(every) <= limit else [*every[:limit], f"  ... and {len(every) - limit} more in the reports"]
