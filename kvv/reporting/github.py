"""GitHub Actions: a step summary (at most 1 MiB) and annotations (at most 10 of each kind a step)."""

from __future__ import annotations

from collections.abc import Sequence

from kvv.core import Outcome
from kvv.rendering.escape import plain
from kvv.reporting import markdown
from kvv.storage.view import RunView

SUMMARY_BYTES = 1024 * 1024
ANNOTATIONS = 10
#: (title, message)
Note = tuple[str, str]
_CUT = "\n\n... cut at GitHub's limit of 1 MiB; the run's folder has the whole report.\n"


def render(view: RunView) -> str:
    """The step summary: the Markdown report, cut at a line within the limit."""
    return summary(markdown.render(view))


def summary(text: str) -> str:
    """Markdown within the limit of a step summary, cut at a line."""
    if len(text.encode()) <= SUMMARY_BYTES:
        return text
    kept = text.encode()[: SUMMARY_BYTES - len(_CUT.encode()) - 8].decode("utf-8", "ignore").rsplit("\n", 1)[0]
    # a cut inside a code block would swallow the note
    fence = "\n```" if kept.count("\n```") % 2 else ""
    return kept + fence + _CUT


def workflow_commands(view: RunView) -> str:
    """Workflow commands for standard output: errors for what failed, warnings for what is open, notices for what is
    degraded or waived.
    """
    errors = [(f"kvv: {cause.title}", cause.sentence) for cause in view.causes if cause.counts]
    warnings, notices = [], [("kvv", f"{view.decision.headline}. {view.explained}".strip())]
    explained = bool(errors)
    for gate in view.decision.gates:
        match gate.decision:
            case Outcome.FAIL if explained:
                pass  # its causes say it
            case Outcome.INCONCLUSIVE if view.trouble and explained:
                pass
            case Outcome.FAIL | Outcome.ERROR:
                errors.append((gate.id, gate.reason))
            case Outcome.INCONCLUSIVE:
                warnings.append((gate.id, gate.reason))
            case _ if gate.degraded or gate.reason.startswith("waived:"):
                notices.append((gate.id, gate.reason))
    warnings += [
        (f"waiver {w.state}", f"{w.case} ({w.owner}, {w.expires})") for w in view.decision.waivers if w.state != "used"
    ]
    return commands(errors=errors, warnings=warnings, notices=notices)


def commands(*, errors: Sequence[Note], warnings: Sequence[Note], notices: Sequence[Note]) -> str:
    """(title, message) pairs as workflow commands, one a line, at most as many of each kind as a step may have; any
    text is harmless in them.
    """
    kinds = (("error", errors), ("warning", warnings), ("notice", notices))
    return "".join(
        f"{_command(kind, title, message)}\n" for kind, notes in kinds for title, message in notes[:ANNOTATIONS]
    )


def _command(kind: str, title: str, message: str) -> str:
    """Escaped as the runner unescapes: percent first, and in properties also colon and comma."""
    head = plain(title, 120).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={head}::{plain(message, 800).replace('%', '%25')}"
