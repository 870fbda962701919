"""GitHub Actions: a step summary (at most 1 MiB) and annotations (at most 10 of each kind a step)."""

from __future__ import annotations

from collections.abc import Iterable

from kvv.model import Outcome
from kvv.report import markdown
from kvv.report.escape import plain
from kvv.report.view import RunView

SUMMARY_BYTES = 1024 * 1024
ANNOTATIONS = 10
_CUT = "\n\n... cut at GitHub's limit of 1 MiB; the run's folder has the whole report.\n"


def render(view: RunView) -> str:
    """The step summary: the Markdown report, cut at a line within the limit."""
    text = markdown.render(view)
    if len(text.encode()) <= SUMMARY_BYTES:
        return text
    kept = text.encode()[: SUMMARY_BYTES - len(_CUT.encode()) - 8].decode("utf-8", "ignore").rsplit("\n", 1)[0]
    # a cut inside a code block would swallow the note
    fence = "\n```" if kept.count("\n```") % 2 else ""
    return kept + fence + _CUT


def workflow_commands(view: RunView) -> str:
    """Workflow commands for standard output: errors for what failed, warnings for what is open, notices for what is degraded or waived."""
    errors, warnings, notices = [], [], []
    for gate in view.decision.gates:
        match gate.decision:
            case Outcome.FAIL | Outcome.ERROR:
                errors.append(_command("error", gate.id, gate.reason))
            case Outcome.INCONCLUSIVE:
                warnings.append(_command("warning", gate.id, gate.reason))
            case _ if gate.degraded or gate.reason.startswith("waived:"):
                notices.append(_command("notice", gate.id, gate.reason))
    warnings += [_command("warning", f"waiver {w.state}", f"{w.case} ({w.owner}, {w.expires})") for w in view.decision.waivers if w.state != "used"]
    notices.insert(0, _command("notice", "kvv", view.decision.headline))
    return "".join(f"{line}\n" for kind in (errors, warnings, notices) for line in _some(kind))


def _some(lines: Iterable[str]) -> list[str]:
    return list(lines)[:ANNOTATIONS]


def _command(kind: str, title: str, message: str) -> str:
    """Escaped as the runner unescapes: percent first, and in properties also colon and comma."""
    head = plain(title, 120).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={head}::{plain(message, 800).replace('%', '%25')}"
