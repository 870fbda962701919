"""report.md: the verdict first, then contract, quality, findings, failures. Every hostile text is a cell or a fenced
block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvv.core import Gate, Outcome, Stat
from kvv.profiles.known_faults import KnownFault
from kvv.rendering.escape import bold, cell, fence_text, percent, plain
from kvv.reporting.instances import COLUMNS, KEY, describe, lines_of
from kvv.storage.view import CheckRow, Quantiles, RunView, early_end, shown_metric

#: failed cases shown with their texts, and rows of any one table
DETAILED = 30
ROWS = 200
#: causes in the table, and those with an example
CAUSES, EXAMPLES = 40, 10


def render(view: RunView) -> str:
    parts = [
        _head(view),
        _causes(view),
        _gates("Contract", view, contract=True),
        _quality(view),
        _instances(view),
        _findings(view),
        _failed(view),
    ]
    parts += [_timing(view), _traffic(view), _waivers(view), _events(view)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], limit: int = ROWS) -> str:
    """A Markdown table of cells already escaped; says how many rows it leaves out."""
    every = list(rows)
    lines = [
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(row)} |" for row in every[:limit]),
    ]
    return "\n".join(lines) + (f"\n\n... and {len(every) - limit} more." if len(every) > limit else "")


def _head(view: RunView) -> str:
    run, end, decision = view.run, view.endpoint, view.decision
    lines = [f"# {cell(decision.headline, 1000)}"]
    if view.trouble:
        lines.append(bold(view.trouble))
    facts = [
        f"- endpoint {cell(end.base_url)}, model {cell(end.model)}, vendor {cell(end.vendor)}",
        (
            f"- profile {cell(view.profile)} ({cell(view.surface)}), policy {cell(view.policy.name)}"
            f" {cell(view.policy.sha256[:12])}"
        ),
        (
            f"- run {cell(run.run_id)}, {cell(run.started)} to {cell(run.finished)}, kvv {cell(run.kvv_version)}, seed"
            f" {run.seed}, exit {run.exit_code}"
        ),
    ]
    if end.upstreams:
        facts.append(
            "- answered by " + ", ".join(f"{cell(name, 80)} ({n})" for name, n in list(end.upstreams.items())[:10])
        )
    if len(end.fingerprints) > 1:
        # a deploy, or a replica each: said, and no verdict
        some = ", ".join(f"{cell(name, 80)} ({n})" for name, n in list(end.fingerprints.items())[:10])
        facts.append(f"- {len(end.fingerprints)} system fingerprints: {some}")
    if run.partial:
        facts.append("- **partial**: less than the planned sample was asked")
    # where causes are told they say it
    why = [] if view.explained else [f"- {cell(reason, 600)}" for reason in decision.why[:20]]
    return "\n\n".join(
        ["\n\n".join(lines), "\n".join(facts), *(["What kept a pass away:\n\n" + "\n".join(why)] if why else [])]
    )


def _causes(view: RunView) -> str:
    """A row a cause, then one example of each of the first."""
    if not view.causes:
        return ""
    told = [cause for cause in view.causes if cause.counts]
    parts = ["## What is wrong", *([cell(view.explained)] if view.explained else [])]
    header = ["#", "cause", "cases", "answers", "where", "known elsewhere", "example"]
    rows = [
        [
            str(number) if cause.counts else "shown only",
            f"{'**' if cause.counts else ''}{cell(cause.title, 300)}{'**' if cause.counts else ''}"
            + (f": {cell(cause.detail, 300)}" if cause.detail else ""),
            f"{cause.cases:,}" if cause.cases else "–",
            f"{cause.answers:,}" if cause.answers else "–",
            cell(cause.where, 100),
            "; ".join(_known(fault) for fault in cause.faults[:3]) or "–",
            cell(cause.example or ", ".join(cause.rules), 200),
        ]
        for number, cause in enumerate([*told, *(cause for cause in view.causes if not cause.counts)], start=1)
    ]
    parts.append(table(header, rows, CAUSES))
    for number, cause in enumerate(told[:EXAMPLES], start=1):
        texts = (
            ("Request", cause.request),
            ("Answer", cause.answer),
            ("Expected", cause.expected),
            ("curl", cause.curl),
        )
        told_texts = [f"{title}:\n\n{fence_text(text, 1_500)}" for title, text in texts if text]
        if told_texts:
            parts.append("\n\n".join([f"### {number}. {cell(cause.title, 300)}", *told_texts]))
    return "\n\n".join(parts)


def _known(fault: KnownFault) -> str:
    """The fault's id and where it was; the links are our own."""
    if not fault.where:
        return cell(fault.id, 40)
    where = f"{cell(fault.id, 40)} {cell(fault.where, 120)}"
    return f"[{where}]({fault.link})" if fault.link else where


def _gates(title: str, view: RunView, *, contract: bool) -> str:
    gates = [g for g in view.decision.gates if (g.id.split("/", 1)[0] not in view.benchmarks) is contract]
    if not gates:
        return ""
    rows = [[_badge(g.decision), cell(g.id, 100), g.level.value, cell(_reason(g), 600)] for g in gates]
    return f"## {title}\n\n" + table(["verdict", "gate", "level", "reason"], rows)


def _badge(outcome: Outcome) -> str:
    return f"**{outcome.value.upper()}**" if outcome in (Outcome.FAIL, Outcome.ERROR) else outcome.value


def _reason(gate: Gate) -> str:
    return f"{'DEGRADED ' if gate.degraded else ''}{gate.reason}"


def _quality(view: RunView) -> str:
    stats = view.decision.stats
    if not stats:
        return ""
    header = [
        "suite",
        "metric",
        "value",
        "95 % interval",
        "n",
        "truncated",
        "worst to best",
        "KVV",
        "reference",
        "margin",
        "verdict",
    ]
    body = "## Quality\n\n" + table(header, [stat_cells(s) for s in stats])
    gates = _gates("Quality gates", view, contract=False)
    return body + (f"\n\n{gates.replace('## ', '### ', 1)}" if gates else "")


def stat_cells(s: Stat) -> list[str]:
    reference = f"{percent(s.reference.value)} ({cell(s.reference.kind)}, n {s.reference.n})" if s.reference else "–"
    return [
        cell(s.suite, 60),
        bold(shown_metric(s), 60) if s.primary else cell(shown_metric(s), 60),
        percent(s.estimate),
        f"{percent(s.interval[0])} to {percent(s.interval[1])}" if s.interval else "–",
        f"{s.n_concluded} of {s.n_planned}" + (f" ({early_end(s)})" if early_end(s) else ""),
        str(s.n_truncated),
        f"{percent(s.worst_case)} to {percent(s.best_case)}",
        percent(s.kvv_value),
        reference,
        percent(s.margin),
        s.verdict.value if s.verdict else "reported",
    ]


def _instances(view: RunView) -> str:
    """What the agent did, in sums and one line an instance."""
    parts = []
    for stat in view.decision.stats:
        if lines := lines_of(stat):
            facts = [
                f"- {cell(name)}: {cell(describe(value))}"
                for name, value in stat.breakdown.items()
                if name not in (KEY, "repositories", "rule")
            ]
            rows = [
                [f"[{cell(line.name)}]({line.href})" if line.href else cell(line.name), *map(cell, line.cells)]
                for line in lines
            ]
            parts.append(
                f"## {cell(view.title(stat.suite))}: instances\n\n"
                + "\n".join(facts)
                + "\n\n"
                + table(["instance", *COLUMNS], rows)
            )
    return "\n\n".join(parts)


def _findings(view: RunView) -> str:
    if not view.decision.findings:
        return ""
    rows = []
    for weighed in view.decision.weighed:
        f = weighed.finding
        where = "; ".join(
            f"{cell(e.exchange, 100)}{f' frame {e.frame}' if e.frame is not None else ''}: {cell(e.excerpt, 120)}"
            for e in f.examples[:2]
        )
        rows.append(
            [
                f.level.value,
                cell(f.rule, 80),
                f.area.value,
                f"{f.count} in {cell(weighed.share, 300)}",
                cell(f.kind.value),
                cell(f.message, 300),
                where,
            ]
        )
    return "## Findings of the wire rules\n\n" + table(
        ["level", "rule", "area", "count in answers", "kind", "message", "examples"], rows
    )


def _failed(view: RunView) -> str:
    rows = view.rows(Outcome.FAIL, Outcome.ERROR)
    contract = [r for r in rows if r.case.suite not in view.benchmarks]
    if not contract:
        return ""
    contract.sort(key=lambda r: not view.counts(r))
    parts = ["## Failed cases", *(_detail(r, view) for r in contract[:DETAILED])]
    if len(contract) > DETAILED:
        parts.append(f"... and {len(contract) - DETAILED} more; `kvv show CASE` shows each.")
    return "\n\n".join(parts)


def _detail(row: CheckRow, view: RunView) -> str:
    verdict = row.verdict
    note = "" if view.counts(row) else " (waived)" if row.waived else " (shown only)"
    lines = [
        f"### {verdict.outcome.value.upper()} {cell(row.id, 200)}{note}",
        f"{cell(verdict.reason)}: {cell(verdict.detail, 600)}",
        f"{row.level.value}: {cell(row.case.requirement, 600)} ({cell(row.case.source, 200)})",
    ]
    for title, text in (
        ("Request", row.request),
        ("Answer", row.answer),
        ("Expected", row.expected),
        ("curl", row.curl),
    ):
        if text:
            lines.append(f"{title}:\n\n{fence_text(text, 1_500)}")
    return "\n\n".join(lines)


def _quantile_cells(name: str, q: Quantiles | None) -> list[str]:
    return [name, *(["–"] * 3 if q is None else [f"{x:,.1f}" for x in (q.p50, q.p90, q.p99)]), str(q.n if q else 0)]


def _timing(view: RunView) -> str:
    t = view.timing
    if t == type(t)():
        return ""
    rows = [_quantile_cells("time to first token, ms", t.ttft_ms)]
    rows += [
        _quantile_cells(
            f"- prompts of {p.low:,} to {p.high:,} tokens" if p.high else f"- prompts from {p.low:,} tokens", p.ttft_ms
        )
        for p in t.by_prompt_tokens
    ]
    rows += [
        _quantile_cells("between tokens, ms", t.itl_ms),
        *(_quantile_cells(f"- {name}", q) for name, q in t.itl_by_workload if len(t.itl_by_workload) > 1),
        _quantile_cells("output tokens/s", t.output_tps),
        _quantile_cells("end to end, ms", t.e2e_ms),
    ]
    return "## Timing\n\n" + table(["", "p50", "p90", "p99", "n"], rows)


def _traffic(view: RunView) -> str:
    t = view.traffic
    cost = f", ${t.cost:,.2f}" if t.cost is not None else ""
    status = ", ".join(f"{cell(code, 20)}: {n}" for code, n in list(t.status.items())[:20])
    return (
        f"## Traffic\n\n{t.requests} requests, {t.attempts} attempts, {t.retried} retried, first try"
        f" {percent(t.first_try_success, 1)} %; {t.prompt_tokens:,} prompt tokens ({t.cached_tokens:,} cached),"
        f" {t.completion_tokens:,} completion tokens{cost}." + (f"\n\nStatus: {status}." if status else "")
    )


def _waivers(view: RunView) -> str:
    rows = [
        [w.state, cell(w.case), cell(w.reason), cell(w.owner), cell(w.issue), cell(w.expires)]
        for w in view.decision.waivers
    ]
    return "## Waivers\n\n" + table(["state", "case", "reason", "owner", "issue", "expires"], rows) if rows else ""


def _events(view: RunView) -> str:
    rows = [[cell(e.at, 40), cell(e.kind, 60), cell(plain(e.message))] for e in view.events]
    return "## Events\n\n" + table(["at", "what", "message"], rows, 50) if rows else ""
