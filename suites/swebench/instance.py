"""A row of a data set becomes a case's inputs: what the agent is told, where it works, how it is graded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from kvv.cases.suite import Context
from kvv.suites.swebench import official
from kvv.suites.swebench.agent import AGENT, AGENT_VERSION
from kvv.suites.swebench.harbor import VERIFIER
from kvv.suites.swebench.known_bad import known_bad
from kvv.suites.swebench.logs import END, EXIT, START, UnknownParserError, parser_for
from kvv.suites.swebench.patches import files_of

#: what a result carries; another program's grader is named with its version
GRADER = "kvv, by the rules of swebench 5.0"
WORKDIR = "/testbed"
MODES = ("tools", "text")
SETS = ("verified", "lite", "full", "multilingual")

#: mini-swe-agent's published limits: steps, US dollars, seconds a command; no limit on the agent's whole time
STEPS, COST, COMMAND_S = 250, 3.0, 60.0
#: the harness's default for a test run, seconds
TEST_S = 1_800.0

#: what a real instance takes, for plans: turns, and prompt tokens over all of them, most of them cached
TURNS, PROMPT_TOKENS = 45, 700_000
#: our own small instances take fewer
SMALL_TURNS, SMALL_PROMPT_TOKENS = 5, 8_000

#: test commands of the classic rows, which do not carry them (the harness's table, without versions' special cases)
_TEST_COMMANDS: Mapping[str, str] = {
    "astropy/astropy": "pytest -rA -vv -o console_output_style=classic --tb=no",
    "django/django": "./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1",
    "mwaskom/seaborn": "pytest --no-header -rA",
    "pydata/xarray": "pytest --no-header -rA --tb=no -p no:cacheprovider",
    "sphinx-doc/sphinx": "tox --current-env -epy39 -v --",
    "sympy/sympy": "PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning' bin/test -C --verbose",
}
_NO_TESTS = (".json", ".png", ".csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml")


def variant_of(variant: str) -> tuple[str, str] | None:
    """The set and the agent's mode that a variant names, in any order; None where it names anything else."""
    parts = variant.split("-") if variant else []
    sets, modes = [part for part in parts if part in SETS], [part for part in parts if part in MODES]
    if len(sets) + len(modes) != len(parts) or len(sets) > 1 or len(modes) > 1:
        return None
    return (sets[0] if sets else SETS[0], modes[0] if modes else MODES[0])


def inputs_of(row: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """JSON-like. ``unusable`` says why a row cannot be graded: its case is a SKIP with that reason, not a row less."""
    settings, prices = context.settings, context.profile.prices
    own, task = bool(row.get("bundle")), row.get("task")
    return {
        "instance": row["instance_id"],
        "repo": row["repo"],
        "stratum": row["repo"],
        "task": row["problem_statement"],
        "mode": (variant_of(settings.variant) or ("", MODES[0]))[1],
        "commits": task is not None,
        "body": context.body([]),
        "stream": settings.stream,
        "limits": {"steps": STEPS, "cost": COST, "command_s": COMMAND_S, "agent_s": task["agent_s"] if task else 0},
        "prices": None if prices is None else {"input": prices.input, "cached": prices.cached, "output": prices.output},
        "sandbox": _sandbox(row),
        "grade": _grade(row),
        "task_files": task,
        "controls": True,
        "window": context.profile.context_window if context.profile.claims.context_window else None,
        "agent": context.agent or f"{AGENT} {AGENT_VERSION}",
        "grader": context.grader or GRADER,
        "official": official.columns(row) if context.grader else None,
        "known_bad": known_bad(row["instance_id"]),
        "unusable": official.unusable(row) if context.grader else _unusable(row),
        "requests": SMALL_TURNS if own else TURNS,
        "tokens": {"prompt": SMALL_PROMPT_TOKENS if own else PROMPT_TOKENS},
    }


def _sandbox(row: Mapping[str, Any]) -> dict[str, str]:
    setup = {"setup": row["setup"]} if row.get("setup") else {}
    if row.get("bundle"):
        image = {"image": row["image"]} if row.get("image") else {}
        return {"bundle": row["bundle"], "commit": row["base_commit"], "workdir": WORKDIR} | image | setup
    image = {"image": row.get("image") or image_of(row["instance_id"])}
    return {**image, "workdir": row.get("workdir") or WORKDIR} | setup


def image_of(instance: str) -> str:
    """The published image's name; Docker allows no double underscore in it."""
    return f"swebench/sweb.eval.x86_64.{instance.lower().replace('__', '_1776_')}:latest"


def _grade(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "base": row["base_commit"],
        "test_patch": row["test_patch"],
        "reference": row.get("patch") or "",
        "eval_script": row.get("eval_script") or ("" if row.get("task") else eval_script(row)),
        "log_parser": _parser(row),
        "fail_only": str(row.get("eval_type") or "").lower() == "fail_only",
        "f2p": list(row["FAIL_TO_PASS"]),
        "p2p": list(row["PASS_TO_PASS"]),
        "timeout_s": TEST_S,
    }


def _parser(row: Mapping[str, Any]) -> str:
    """Our own instances name Django's parser, which the harness has; their ids are unittest's, which differ with the
    version of Python.
    """
    try:
        found = parser_for(row.get("log_parser") or "", row["repo"], row["instance_id"])
        return "unittest" if row.get("bundle") and found == "django" else found
    except UnknownParserError:
        return ""


def _unusable(row: Mapping[str, Any]) -> str:
    task = row.get("task")
    if task is not None:
        return "" if VERIFIER in task["files"] else f"the task has no tests/{VERIFIER}"
    try:
        parser_for(row.get("log_parser") or "", row["repo"], row["instance_id"])
    except UnknownParserError as error:
        return str(error)
    if row.get("bundle") and not (row.get("eval_script") or row.get("test_command")):
        return "the row has neither test_command nor eval_script"
    return "" if row["FAIL_TO_PASS"] else "the instance names no FAIL_TO_PASS test"


def directives(repo: str, test_patch: str) -> Sequence[str]:
    """What the test command is pointed at: the test files of the patch, for Django as module names."""
    names = [name for name in files_of(test_patch) if not name.endswith(_NO_TESTS)]
    if repo == "django/django":
        return [name.removesuffix(".py").removeprefix("tests/").replace("/", ".") for name in names]
    return names


def eval_script(row: Mapping[str, Any]) -> str:
    """The official script's form for a classic row, whose environment is the image's, or for one that names its own
    ``test_command``: that is run in the tree as it is written, without any environment of conda's.
    """
    repo, patch = row["repo"], row["test_patch"]
    mark = "EOF_114329324912"
    while mark in patch:
        mark += "_"
    tests = " ".join(map(quote, directives(repo, patch)))
    files = " ".join(map(quote, files_of(patch)))
    own = row.get("test_command")
    conda = ["source /opt/miniconda3/bin/activate", "conda activate testbed"]
    workdir = quote(row.get("workdir") or WORKDIR) if own and not row.get("bundle") else WORKDIR
    return "\n".join(
        [
            "set -uxo pipefail",
            *([] if own else conda),
            f"cd {workdir}",
            f"git config --global --add safe.directory {workdir}",
            f"git apply -v - <<'{mark}'\n{patch.rstrip(chr(10))}\n{mark}",
            f": '{START}'",
            own or f"{_TEST_COMMANDS.get(repo, 'pytest -rA')} {tests}",
            "code=$?",
            f": '{END}'",
            f'echo "{EXIT}: $code"',
            f"git checkout {quote(row['base_commit'])} {files}",
        ]
    )
