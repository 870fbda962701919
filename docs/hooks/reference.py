"""Makes the pages under ``reference/`` from the code, each time the documentation is built (a hook of MkDocs)."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import date
from enum import Enum
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from unittest import mock

from pydantic import BaseModel

import kvv.suites
from kvv.cases.case_file import CaseFile
from kvv.cases.suite import Context, Settings, SuiteKind, load_suite, suite_ids
from kvv.cli.main import build_parser
from kvv.core import Surface
from kvv.core.exit_codes import ExitCode
from kvv.planning.config import CONFIG_FILE, RunConfig
from kvv.planning.trust import GUARDED, TRUST_VARIABLE
from kvv.profiles.policy import Policy, load_policy, policy_ids
from kvv.profiles.profile import Profile, load_profile, profile_ids
from kvv.protocol.rules import RULES

HERE = Path(__file__).resolve().parent.parent
CODE = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")
#: text of a decision: its code, then what was measured
PREFIX = re.compile(rf"({CODE.pattern})(?:: .*)?", re.DOTALL)
#: kinds of reference, and the state of a waiver
NO_REASONS = {"per-case", "server-count", "not-seen"}
#: calls that take a reason code, and where among their arguments
TAKES_REASON = {
    "inconclusive": 0,
    "_deviate": 0,
    "_done": 1,
    "_open": 2,
    "unjudged_verdict": 2,
    "_unjudged": 3,
    "halt": 0,
}


def cell(text: object) -> str:
    """Plain text as one cell of a table."""
    plain = " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")
    return re.sub(r":? ?(https?://)([^\s;,()/]+)([^\s;,()]*)", r" [\2](\1\2\3)", plain).strip()


def table(heads: list[str], rows: Iterator[list[object]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(cell, row))} |" for row in rows)]) + "\n"


def command_line() -> str:
    """The help of every verb, as the terminal shows it."""
    parts = ["# Command line\n\nThe help of every verb, and the exit codes.\n"]
    with mock.patch.dict(os.environ, {"COLUMNS": "100"}):
        for name, parser in verbs(build_parser(), "kvv"):
            parts.append(f"## {name}\n\n```text\n{parser.format_help().strip()}\n```\n")
    parts.append("## Exit codes\n\n" + table(["code", "name"], ([code.value, code.name.lower()] for code in ExitCode)))
    return "\n".join(parts)


def verbs(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, child in action.choices.items():
                yield from verbs(child, f"{name} {verb}")


#: what TOML calls a type
NAMES = {str: "text", int: "integer", float: "number", bool: "true or false", date: "date", type(None): "absent"}


def toml_type(annotation: Any) -> str:
    """A type in the words of a TOML file: `list of text`, `one of on, off`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return toml_type(inner[0])
    if origin is Literal:
        return "one of " + ", ".join(str(each) or '""' for each in inner)
    if origin in (Union, UnionType):
        return " or ".join(toml_type(each) for each in inner if each is not type(None))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"table of {toml_type(inner[1])}"
    if origin in (tuple, list):
        return f"list of {toml_type(inner[0])}"
    if isinstance(annotation, type):
        if issubclass(annotation, BaseModel):
            return "table"
        if issubclass(annotation, Enum):
            return "one of " + ", ".join(str(each.value) for each in annotation)
    return NAMES.get(annotation, "any value")


def toml_value(value: object) -> str:
    """A default as TOML has it; what has no default is absent."""
    if value is None:
        return "absent"
    plain = value.value if isinstance(value, Enum) else value
    return json.dumps(list(plain) if isinstance(plain, tuple) else plain, ensure_ascii=False, default=str)


def tables_of(model: type[BaseModel], path: str, seen: set[type[BaseModel]]) -> Iterator[str]:
    """A section for the table and for each table in it: its docstring, then key, type and default."""
    if model in seen:
        return
    seen.add(model)
    rows: list[list[object]] = []
    inner: list[tuple[type[BaseModel], str]] = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        nested = list(models_in(field.annotation))
        inner += [(each, f"{path}.{key}" if path else key) for each in nested]
        default = "" if nested else f"`{toml_value(field.get_default(call_default_factory=True))}`"
        rows.append([f"`{key}`", toml_type(field.annotation), "required" if field.is_required() else default])
    heading = f"`[{path}]`" if path else "Top level"
    yield f"## {heading}\n\n{described(model)}\n\n{table(['key', 'type', 'default'], iter(rows))}"
    for each, where in inner:
        yield from tables_of(each, where, seen)


def described(item: type) -> str:
    text = inspect.cleandoc(item.__doc__ or "") if "__doc__" in vars(item) else ""
    return text.replace("``", "`").replace("<", "&lt;")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in getattr(annotation, "__args__", ()):
        yield from models_in(each)


def profile_page() -> str:
    listed = (
        [f"`{name}`", profile.title, ", ".join(profile.match), profile.checked or ""]
        for name in profile_ids()
        if (profile := load_profile(name))
    )
    return (
        "# Profile\n\nA profile is a TOML file that states what a model promises.\n\n## Shipped profiles\n\n"
        + table(["profile", "model", "model names that pick it", "facts read on"], listed)
        + "\n"
        + "\n".join(tables_of(Profile, "", set()))
    )


def policy_page() -> str:
    listed = ([f"`{name}`", load_policy(name).title] for name in policy_ids())
    return (
        "# Policy\n\nA policy is a TOML file that states what a run must show.\n\n## Shipped policies\n\n"
        + table(["policy", "in short"], listed)
        + "\n"
        + "\n".join(tables_of(Policy, "", set()))
    )


def configuration_page() -> str:
    guarded = ", ".join(f"`{name}`" for name in GUARDED)
    head = f"""# {CONFIG_FILE}

Options of a run may stand in `{CONFIG_FILE}` of the current folder. An option on the command line goes before
a variable (`KVV_BASE_URL`, `KVV_MODEL`), and a variable before the file.

{guarded}, and paths outside the folder, are followed only if you gave `--trust-config` once, until the file changes.
In CI they are followed if `{TRUST_VARIABLE}` holds the file's SHA-256.

"""
    return head + "\n".join(tables_of(RunConfig, "", set()))


def case_file_page() -> str:
    return (
        "# Case file\n\n`cases.toml` of a contract suite: what is sent, and what the answer must show.\n\n"
        + "\n".join(tables_of(CaseFile, "", set()))
    )


def report_page() -> str:
    schema = json.loads(files("kvv.reporting").joinpath("report.schema.json").read_text("utf-8"))
    rows = list(schema_rows(schema, ""))
    return (
        "# report.json\n\n"
        + f"{schema['title']}. {schema['description']} `[]` stands for each entry of a list, `*` for each key.\n\n"
        + table(["field", "type", "always there"], iter(rows))
    )


def schema_rows(schema: Mapping[str, Any], path: str) -> Iterator[list[object]]:
    required = set(schema.get("required", ()))
    for name, child in schema.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        yield [f"`{where}`", schema_type(child), "yes" if name in required else ""]
        yield from schema_rows(child, where)
    for key, suffix in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(key), dict):
            yield from schema_rows(schema[key], path + suffix)


def schema_type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(str(value) for value in schema["enum"])
    if "const" in schema:
        return f"always {schema['const']}"
    kind = schema.get("type", "any")
    return kind if isinstance(kind, str) else " or ".join(kind)


def rules_page() -> str:
    rows = (
        [f"`{rule.id}`", rule.level.value, rule.area.value, rule.kind.value, rule.requirement, rule.source]
        for rule in RULES.values()
    )
    return (
        "# Wire rules\n\nRules look at every answer, of contract cases and of benchmarks alike. "
        "`kvv show --rule ID last` prints what a rule objected to in a run.\n\n"
        + table(["rule", "level", "area", "kind", "requirement", "source"], rows)
    )


def cases_page() -> str:
    """Cases of every contract suite under Moonshot's profile, without repeats that differ in the mode alone."""
    parts = [
        "# Contract cases\n\nThe cases of the profile `kimi-k3`. Each is asked in several modes (thinking on and off, "
        "streamed and whole); the modes are not listed. For another profile: `kvv list cases --profile NAME`.\n"
    ]
    context = Context(model="MODEL", profile=load_profile("kimi-k3", Surface.VENDOR), settings=Settings())
    for name in suite_ids():
        suite = load_suite(name)
        if suite.kind is SuiteKind.BENCHMARK:
            continue
        rows: dict[str, list[object]] = {}
        for case in suite.cases(context):
            short = re.sub(r"/(?:thinking-\w+|stream|whole)(?=/|$)", "", case.id)
            rows.setdefault(short, [f"`{short}`", case.level.value, case.area.value, case.requirement, case.source])
        parts.append(f"## {suite.title}\n")
        parts.append(table(["case", "level", "area", "requirement", "source"], iter(rows.values())))
    return "\n".join(parts)


def reason_codes() -> dict[str, set[str]]:
    """Reason codes in the source, and the packages that give them: what is passed as ``reason`` or to TAKES_REASON."""
    found: dict[str, set[str]] = defaultdict(set)
    roots = (Path(kvv.__file__).parent, *map(Path, kvv.suites.__path__))
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            first = path.relative_to(root).parts[0]
            # an installed package holds the suites, an editable one has them elsewhere
            if root == roots[0] and first == "suites":
                continue
            where = first if root == roots[0] else f"suites/{first}"
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call):
                    for code in codes_in(node):
                        found[code].add(where)
                elif isinstance(node, ast.Assign):
                    for code in codes_assigned(node):
                        found[code].add(where)
                elif where == "decision" and isinstance(node, ast.Constant) and isinstance(node.value, str):
                    match = PREFIX.fullmatch(node.value)
                    if match and match[1] not in NO_REASONS:
                        found[match[1]].add(where)
    return dict(found)


def codes_in(call: ast.Call) -> Iterator[str]:
    named = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
    place = TAKES_REASON.get(named)
    given += call.args[place : place + 1] if place is not None else []
    for each in given:
        choices = [each.body, each.orelse] if isinstance(each, ast.IfExp) else [each]
        for choice in choices:
            if isinstance(choice, ast.Constant) and isinstance(choice.value, str) and CODE.fullmatch(choice.value):
                yield choice.value


def codes_assigned(node: ast.Assign) -> Iterator[str]:
    """What is assigned to `reason`, or to a constant such as BUDGET_REASONS."""
    names = [getattr(target, "attr", getattr(target, "id", "")) for target in node.targets]
    if any(name == "reason" or name.endswith("_REASONS") for name in names):
        for each in ast.walk(node.value):
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and CODE.fullmatch(each.value):
                yield each.value


def meanings() -> dict[str, str]:
    return tomllib.loads((HERE / "hooks" / "reason-codes.toml").read_text("utf-8"))


def reason_page() -> str:
    known = meanings()
    found = reason_codes()
    rows = (
        [f"`{code}`", known.get(code, ""), ", ".join(sorted(found.get(code, ())))] for code in sorted({*found, *known})
    )
    return (
        "# Reason codes\n\nEvery verdict other than a plain pass carries a reason code. A code never changes meaning. "
        "The report has the details beside it. Codes whose name says it all have no text here.\n\n"
        + table(["code", "meaning, and what to do", "given by"], rows)
    )


PAGES = {
    "reference/command-line.md": command_line,
    "reference/configuration.md": configuration_page,
    "reference/profile.md": profile_page,
    "reference/policy.md": policy_page,
    "reference/case-file.md": case_file_page,
    "reference/report-json.md": report_page,
    "reference/rules.md": rules_page,
    "reference/cases.md": cases_page,
    "reference/reason-codes.md": reason_page,
}


def on_files(files: Any, config: Any) -> Any:
    """Called by MkDocs: adds the generated pages to those that lie in docs/."""
    from mkdocs.structure.files import File

    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files
