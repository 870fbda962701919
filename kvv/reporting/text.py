"""The verdict on a terminal: a block of plain lines, no colours, no control characters but the newline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvv.core import Gate, Level, Outcome, Stat
from kvv.core.exit_codes import ExitCode
from kvv.rendering.escape import percent, plain
from kvv.storage.view import RunView, early_end, shown_metric

__all__ = ["brief", "plain", "render"]

#: lines of one kind; the reports have the rest
LISTED = 12
#: gates that -q names
REASONS = 4


def render(view: RunView) -> str:
    """The first line is the verdict and what it covers; every line ends with a newline."""
    decision = view.decision
    headline, *trouble = _brief(view)
    lines = [headline]
    facts = (
        view.endpoint.base_url,
        view.endpoint.model,
        f"profile {view.profile} ({view.surface})",
        f"policy {view.policy.name} {view.policy.sha256[:12]}",
    )
    lines.append("  " + " · ".join(plain(fact, 200) for fact in facts))
    lines += trouble
    if view.run.partial:
        lines.append("  partial: less than the planned sample was asked")
    lines += _gates(decision.gates)
    lines += _rows(decision.stats)
    lines += _failed(view)
    lines += _findings(view)
    lines += _waivers(view)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def brief(view: RunView) -> str:
    """The verdict and, where something kept the run from one, what that is: all that `-q` shows."""
    return "".join(f"{line}\n" for line in _brief(view))


def _brief(view: RunView) -> list[str]:
    # a wrong key or address ends with exit code 2 beside INCONCLUSIVE: said here, or nobody knows why
    cause = "configuration (exit code 2): " if view.run.exit_code == ExitCode.USAGE else ""
    lines = [plain(view.decision.headline, 1000), *([f"  {cause}{plain(view.trouble, 600)}"] if view.trouble else [])]
    # a dead endpoint's one sentence says it all; else the gates that kept a pass away
    return lines if view.trouble else [*lines, *(f"  {plain(why, 300)}" for why in view.decision.why[:REASONS])]


def _gates(gates: Sequence[Gate]) -> list[str]:
    if not gates:
        return []
    width = min(40, max(len(g.id) for g in gates))
    order = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.SKIP)
    ranked = sorted(gates, key=lambda g: order.index(g.decision))
    lines = [f"  {g.decision.value.upper():<13}{plain(g.id, 80):<{width}}  {plain(_reason(g), 300)}" for g in ranked]
    return ["", *_some(lines, 4 * LISTED)]


def _reason(gate: Gate) -> str:
    degraded = "DEGRADED " if gate.degraded else ""
    return f"{degraded}{gate.reason}"


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


def _failed(view: RunView) -> list[str]:
    rows = [r for r in view.rows(Outcome.FAIL, Outcome.ERROR) if r.case.suite not in view.benchmarks and not r.waived]
    lines = [
        f"  {r.verdict.outcome.value.upper():<6}{r.level.value:<7}{plain(r.id, 80)}: {plain(r.verdict.reason, 60)}"
        f" {plain(r.verdict.detail)}"
        for r in sorted(rows, key=lambda r: r.level is not Level.MUST)
    ]
    return ["", *_some(lines, LISTED)] if lines else []


def _findings(view: RunView) -> list[str]:
    order = (Level.MUST, Level.SHOULD, Level.MAY)
    groups = sorted(view.decision.weighed, key=lambda one: order.index(one.finding.level))
    lines = [
        f"  {one.finding.level.value:<7}{plain(one.finding.rule, 60)} x{one.finding.count} in {plain(one.share, 200)}:"
        f" {plain(one.finding.message, 160)}"
        for one in groups
    ]
    return ["", *_some(lines, LISTED)] if lines else []


def _waivers(view: RunView) -> list[str]:
    lines = [
        f"  waiver {w.state}: {plain(w.case, 80)} ({plain(w.owner, 60)}, until {w.expires}): {plain(w.reason, 120)}"
        for w in view.decision.waivers
    ]
    return ["", *_some(lines, LISTED)] if lines else []


def _some(lines: Iterable[str], limit: int) -> list[str]:
    every = list(lines)
    return every if len(every) <= limit else [*every[:limit], f"  ... and {len(every) - limit} more in the reports"]
