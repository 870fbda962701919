"""What the agent is told. The protocol is mini-swe-agent's (one bash tool or one fenced block, a linear history,
submission by a marked output, the same limits and cuts); the words are our own, which ``comparability`` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: first line of the output of the command that submits
MARK = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
#: a longer observation keeps this many characters from each end
HALF = 5_000
#: what opens the block of a command in text mode
FENCE = "mswea_bash_command"

TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a bash command in the repository and get its output and exit code.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The bash command to run"}},
            "required": ["command"],
        },
    },
}

_SYSTEM = "You are a software engineer who works in a repository through a shell."

_TASK = """<issue>
{task}
</issue>

The repository is checked out in {workdir}, where every command starts. Change its source so that the issue is resolved in general, in the
style of the code around. Do not change tests or the configuration of the test runner.

Each answer holds {action}. Every command runs in a new shell: a changed directory or variable does not last, files do. There is no network and
nobody to ask; do not start editors or anything that waits for input. Find the code, reproduce the issue, fix it, check the fix, look at the
edge cases.

{ending}"""

_BY_PATCH = f"""When you are done, make the patch with `git diff -- FILE... > patch.txt`, naming only the source files you changed, look at patch.txt,
and then submit it with exactly this command, alone:

echo {MARK} && cat patch.txt

Nothing can be done after that. A submission whose command fails does not count."""

_BY_COMMIT = f"""When you are done, commit everything that belongs to the change on a branch of its own: only commits count. Then end with exactly
this command, alone:

echo {MARK}

Nothing can be done after that."""

_ACTIONS = {
    "tools": "your reasoning and at least one call of the tool `bash`; several calls run one after the other",
    "text": f"your reasoning and exactly one command in a block that opens with ```{FENCE} and closes with ```",
}


def opening(task: str, *, mode: str, workdir: str, commits: bool) -> list[dict[str, Any]]:
    """The first two messages."""
    text = _TASK.format(
        task=task.strip("\n"), workdir=workdir, action=_ACTIONS[mode], ending=_BY_COMMIT if commits else _BY_PATCH
    )
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": text}]


def observation(output: str, exit_code: int | None, *, elided: int, timeout_s: float) -> str:
    """What a command gave, cut in the middle; ``elided`` characters were cut by the sandbox already."""
    if len(output) + elided > 2 * HALF:
        left_out = len(output) + elided - 2 * HALF
        output = f"{output[:HALF]}\n... [{left_out} characters left out] ...\n{output[-HALF:]}"
    ending = (
        f"[killed after {timeout_s:g} s; try a command that ends by itself]"
        if exit_code is None
        else f"[exit code {exit_code}]"
    )
    return f"{output}{'' if output.endswith(chr(10)) or not output else chr(10)}{ending}"


def format_error(mode: str, why: str) -> str:
    return f"No command was run: {why}. An answer must hold {_ACTIONS[mode]}. To submit, follow the first message."
