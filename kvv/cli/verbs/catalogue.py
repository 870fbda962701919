"""`kvv list`, `kvv data`, `kvv serve`: what there is, and our own endpoint."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvv.core.usage_error import ConfigError
from kvv.rendering.escape import plain


def list_things(arguments: argparse.Namespace) -> int:
    rows = {
        "suites": _suites,
        "cases": _cases,
        "rules": _rules,
        "faults": _faults,
        "profiles": _profiles,
        "policies": _policies,
        "runs": _runs,
    }[arguments.what](arguments)
    if arguments.json_output:
        print(json.dumps(list(rows), indent=2))
        return 0
    for row in rows:
        print(plain("  ".join(str(value) for value in row.values() if value not in ("", None))))
    return 0


Row = dict[str, Any]


def _suites(arguments: argparse.Namespace) -> Iterator[Row]:
    from kvv.cases.suite import load_suite, suite_ids

    for name in suite_ids():
        suite = load_suite(name)
        yield {
            "id": suite.id,
            "kind": suite.kind.value,
            "title": suite.title,
            "areas": ", ".join(suite.areas),
            "needs": ", ".join(suite.needs),
        }


def _cases(arguments: argparse.Namespace) -> Iterator[Row]:
    from kvv.cases.suite import Context, Settings, SuiteKind, load_suite, suite_ids

    context = Context(model="MODEL", profile=_profile(arguments), settings=Settings())
    for name in suite_ids():
        suite = load_suite(name)
        if suite.kind is SuiteKind.BENCHMARK:
            continue
        for case in suite.cases(context):
            yield {
                "id": case.id,
                "level": case.level.value,
                "area": case.area.value,
                "requirement": case.requirement,
                "source": case.source,
            }


def _profile(arguments: argparse.Namespace) -> Any:
    from kvv.core import Surface
    from kvv.profiles.profile import ProfileError, find_profile

    try:
        return find_profile(arguments.profile, Surface(arguments.surface))
    except (ProfileError, ValueError) as error:
        raise ConfigError(f"--profile or --surface: {error}") from error


def _rules(arguments: argparse.Namespace) -> Iterator[Row]:
    from kvv.protocol.rules import RULES

    for rule in RULES.values():
        yield {
            "id": rule.id,
            "level": rule.level.value,
            "area": rule.area.value,
            "kind": rule.kind.value,
            "requirement": rule.requirement,
            "source": rule.source,
        }


def _faults(arguments: argparse.Namespace) -> Iterator[Row]:
    from kvv.mockserver.faults import FAULTS

    for name, fault in FAULTS.items():
        yield {
            "id": name,
            "group": fault.group,
            "mode": fault.mode,
            "areas": ", ".join(fault.areas),
            "summary": fault.summary,
        }


def _profiles(arguments: argparse.Namespace) -> Iterator[Row]:
    from kvv.profiles.profile import load_profile, profile_ids

    for name in profile_ids():
        profile = load_profile(name)
        yield {
            "id": name,
            "title": profile.title,
            "match": ", ".join(profile.match),
            "suites": ", ".join(profile.suites),
        }


def _policies(arguments: argparse.Namespace) -> Iterator[Row]:
    from kvv.profiles.policy import load_policy, policy_ids

    for name in policy_ids():
        policy = load_policy(name)
        yield {"id": name, "sha256": policy.sha256[:12], "requires": ", ".join(policy.required.suites)}


def _runs(arguments: argparse.Namespace) -> Iterator[Row]:
    """The newest first; running ones on top."""
    from kvv.cli.verbs.viewer.library import Library

    for card in Library(Path(arguments.out or "reports")).cards():
        yield {
            "id": card.id,
            "verdict": card.verdict,
            "vendor": card.vendor,
            "model": card.model,
            "started": card.started,
            "cause": card.first_cause or card.headline,
        }


# --- data ----------------------------------------------------------------------------------------


def data(arguments: argparse.Namespace) -> int:
    from kvv import data as room

    try:
        match arguments.action:
            case "where":
                for line in _where(room, arguments.suite, arguments.variant or ""):
                    print(plain(line))
                return 0
            case "pull":
                into = Path(arguments.into) if arguments.into else None
                asked = {"mirror": arguments.mirror, "revision": arguments.revision, "variant": arguments.variant or ""}
                for line in _lines(room.pull(_named(arguments), into=into, **asked)):
                    print(plain(line))
                return 0
            case _:
                if arguments.data:
                    return _verify_rows(_named(arguments), Path(arguments.data), arguments.sandbox)
                verified = room.verify(_named(arguments), arguments.path, arguments.variant or "")
                for line in _lines(verified):
                    print(plain(line))
                return 0 if verified.ok else 1
    except room.DataError as error:
        raise ConfigError(f"{arguments.suite or 'SUITE'}: {error}") from error


def _verify_rows(name: str, path: Path, sandbox: str | None) -> int:
    """Each row of the user's own is tried and shown; 1 where one is not as it promises."""
    from kvv.cases.suite import SuiteError, load_suite
    from kvv.execution.control_runs import try_rows
    from kvv.sandbox import SandboxError

    try:
        suite = load_suite(name)
    except SuiteError as error:
        raise ConfigError(f"SUITE: {error}") from error
    if "sandbox" not in suite.needs:
        raise ConfigError(f"--data: rows of {name} need no trial; --path checks them")
    wrong = 0
    try:
        for case, problem in try_rows(suite, path, sandbox):
            wrong += bool(problem)
            print(plain(f"{case}: {problem or 'the tests fail without a patch and pass with the reference'}", 600))
    except SandboxError as error:
        raise ConfigError(f"--data: the rows cannot be tried: {error}") from error
    return int(bool(wrong))


def _named(arguments: argparse.Namespace) -> str:
    if not arguments.suite:
        raise ConfigError("SUITE: say whose data to " + arguments.action)
    return str(arguments.suite)


def _where(room: Any, suite: str | None, variant: str) -> Iterator[str]:
    names: Iterable[str] = [suite] if suite else room.names()
    for name in names:
        for place in room.where(name, variant if suite else ""):
            yield f"{name}: {place}"


def _lines(result: Any) -> Iterator[str]:
    yield from str(result).splitlines()


# --- serve ---------------------------------------------------------------------------------------


def serve(arguments: argparse.Namespace) -> int:
    from kvv.execution.answer_key import answer_entries, keyed_suites
    from kvv.mockserver import MockConfig, serve_forever
    from kvv.mockserver.faults import FAULTS
    from kvv.planning.config import pairs, read_key

    unknown = [name for name in arguments.fault if name.split(":")[0] not in FAULTS and not name.startswith("quirk:")]
    if unknown:
        raise ConfigError(f"--fault: no fault {unknown[0]!r}; `kvv list faults` names them")
    if not 0 <= arguments.accuracy <= 1:
        raise ConfigError(f"--accuracy: wants a share from 0 to 1, got {arguments.accuracy}")
    if not 0 <= arguments.port <= 65535:
        raise ConfigError(f"--port: wants 0 to 65535, got {arguments.port}")
    key = read_key(arguments.api_key_env, required=True) if arguments.api_key_env else None
    try:
        serve_forever(
            MockConfig(
                host=arguments.host,
                port=arguments.port,
                model=arguments.model,
                variant=arguments.variant,
                accuracy=arguments.accuracy,
                seed=arguments.seed,
                ttft_ms=arguments.ttft_ms,
                itl_ms=arguments.itl_ms,
                stamp=arguments.stamp,
                # every entry alike: --accuracy is the share that is reached
                answers=tuple(
                    replace(entry, ease=1.0) for entry in answer_entries(keyed_suites(pairs(arguments.data, "--data")))
                ),
                faults=tuple(arguments.fault),
                api_key=key,
            )
        )
    except OSError as error:
        raise ConfigError(
            f"--port: cannot listen on {arguments.host}:{arguments.port}: {error.strerror or error}"
        ) from error
    return 0
