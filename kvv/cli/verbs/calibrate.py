"""`kvv calibrate`: measures an official endpoint and writes what it does as a profile file.

The measurement is a run: its folder, keys, budget and questions about cost are those of `kvv run`. It asks the probes
of the calibration suite, and the contract suites as `kvv check` does, so that the file knows what the official endpoint
itself fails.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import tomli_w

from kvv import __version__
from kvv.cases.suite import SuiteKind, load_suite
from kvv.cli.flags import flags_of
from kvv.core import Level, Outcome
from kvv.core.exit_codes import ExitCode
from kvv.planning.config import ConfigError, RunConfig, load_config
from kvv.profiles.calibration import HOLDS, is_rule, merge, merge_failures, profile_table
from kvv.profiles.profile import (
    Calibrated,
    Measured,
    Profile,
    ProfileError,
    find_profile,
    load_profile,
    pick_profile,
    profile_ids,
)
from kvv.protocol.redaction.redactor import redact_url
from kvv.rendering.escape import plain
from kvv.storage.files import replace_file
from kvv.storage.view import RunView

SUITE = "calibration"
#: options that are no option of the run
OWN = ("to", "merge")
HEADER = """\
# Measured by kvv calibrate. Facts that repeat on another day are rules. They only warn until a person who vouches for
# them writes a name (signed_by) and the day (signed_on) under [calibrated], and again after the day `expires`.
"""
#: endings after which nothing is written
ENDED = (ExitCode.USAGE, ExitCode.ERROR, ExitCode.BOUND, ExitCode.INTERRUPTED)


def calibrate(arguments: argparse.Namespace, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> int:
    """0 where a file was written, 3 where nothing definite was answered, else as a run ends."""
    flags = {name: value for name, value in flags_of(arguments).items() if name not in OWN}
    if arguments.merge and "profile" in flags:
        raise ConfigError("--merge: the file says which profile it extends; leave --profile out")
    earlier = _earlier(arguments.merge) if arguments.merge else None
    config = load_config({**flags, "surface": flags.get("surface", "official")})
    base_url = config.base_url
    if base_url is None:
        raise ConfigError("--base-url: names the official endpoint that is measured")
    if config.model is None:
        raise ConfigError("--model: is needed beside --base-url (or KVV_MODEL)")
    base_id = _base_id(earlier[1] if earlier else config.profile, config.model)
    to = Path(arguments.to or arguments.merge or f"{_slug(config.model)}.toml")
    _check_target(to, merged=arguments.merge)
    config = config.model_copy(update={"profile": base_id, "suites": (SUITE, *_suites(config, base_id))})
    if earlier:
        _same_endpoint(earlier[0], base_url, config, arguments.merge)
    from kvv.cli.verbs.session import start

    seen: list[RunView] = []
    code = start(config, contract_only=True, tell=lambda told, view, folder: seen.append(view))
    if not seen or code in ENDED:
        return code
    measured = collect(seen[0], earlier[0] if earlier else None, now())
    if measured is None:
        print("kvv calibrate: no probe got a definite answer: nothing was written", file=sys.stderr)
        return ExitCode.INCONCLUSIVE
    text = render(load_profile(base_id), measured, base_id)
    try:
        replace_file(to, text)
    except OSError as error:
        raise ConfigError(f"--to: {to} cannot be written: {error.strerror or error}") from error
    if not config.quiet:
        print(plain(summary(measured, to), 1_000), flush=True)
    return ExitCode.PASS


def collect(view: RunView, earlier: Calibrated | None, now: datetime) -> Calibrated | None:
    """What one run measured, joined to what was measured before; None where no probe was answered definitely."""
    rows = [row for row in view.checks if row.case.suite == SUITE and row.verdict.outcome is Outcome.PASS]
    if not rows:
        return None
    by_fact: dict[str, list[Measured]] = {}
    for row in rows:
        facts, inputs = row.verdict.facts, row.case.inputs
        by_fact.setdefault(inputs["fact"], []).append(
            Measured(
                fact=inputs["fact"],
                asked=1,
                answered=int(facts["answered"]),
                obeyed=None if facts["obeyed"] is None else int(facts["obeyed"]),
                fields=inputs["fields"],
                thinking=inputs["thinking"],
                values=tuple(facts["values"]),
                texts=tuple(facts["texts"]),
            )
        )
    today = [_one(found, now) for found in by_fact.values()]
    asked = [row.id for row in view.checks if row.case.suite != SUITE and row.verdict.outcome in _DECIDED]
    failed = [row.id for row in view.checks if row.case.suite != SUITE and row.verdict.outcome is Outcome.FAIL]
    rules = [found.rule for found in view.decision.findings if found.level is not Level.MAY]
    known = earlier.fails if earlier else ()
    ruled = [one.id for one in known if one.id.count("/") == 1]  # a rule that no exchange broke was looked at too
    return Calibrated(
        base_url=view.endpoint.base_url,
        model=view.endpoint.model,
        kvv=__version__,
        expires=(now + HOLDS).date(),
        evidence=merge(earlier.evidence if earlier else (), today),
        fails=merge_failures(known, [*failed, *rules], [*asked, *rules, *ruled], now),
    )


_DECIDED = (Outcome.PASS, Outcome.FAIL)


def _one(found: Iterable[Measured], now: datetime) -> Measured:
    """One day's rounds of a fact."""
    (joined,) = merge((), found)
    return joined.model_copy(update={"rounds": (now.replace(microsecond=0),)})


def render(base: Profile, measured: Calibrated, base_id: str) -> str:
    table = profile_table(base, measured, extends=base_id)
    return f"{HEADER}\n{tomli_w.dumps(table)}"


def summary(measured: Calibrated, to: Path) -> str:
    rules = sum(is_rule(one.rounds) for one in measured.evidence)
    text = f"{to}: {len(measured.evidence)} facts measured, {rules} of them rules"
    again = f"; measure again on another day: kvv calibrate --merge {to}" if rules < len(measured.evidence) else ""
    fails = f"; {len(measured.fails)} cases and rules that the endpoint itself fails" if measured.fails else ""
    return text + fails + again


# --- what was given -----------------------------------------------------------------------------------


def _earlier(name: str) -> tuple[Calibrated, str]:
    """An earlier measurement, and the id of the profile that its file extends."""
    try:
        profile = find_profile(name)
        text = Path(name).read_text("utf-8")
    except (ProfileError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--merge: {error}") from error
    if profile.calibrated is None:
        raise ConfigError(f"--merge: {name} is no file of kvv calibrate: it has no table [calibrated]")
    return profile.calibrated, str(tomllib.loads(text).get("extends", ""))


def _same_endpoint(known: Calibrated, base_url: str, config: RunConfig, name: str) -> None:
    """Measurements of two endpoints or models never become one rule; an address that was left out is taken on trust."""
    if known.model != config.model:
        raise ConfigError(f"--merge: {name} measured the model {known.model!r:.100}, not {config.model!r:.100}")
    if known.base_url and not config.public and known.base_url != redact_url(base_url):
        raise ConfigError(f"--merge: {name} measured {known.base_url:.200}; measure another endpoint into another file")


def _base_id(name: str | None, model: str) -> str:
    chosen = name or pick_profile(model)[0]
    if chosen not in profile_ids():
        raise ConfigError(
            f"--profile: {chosen!r:.100} is no known profile; a calibration extends one of these:"
            f" {', '.join(profile_ids())}"
        )
    return chosen


def _suites(config: RunConfig, base_id: str) -> tuple[str, ...]:
    """The contract suites that were named, or all of the profile's."""
    wanted = config.suites or load_profile(base_id).suites
    found = tuple(name for name in wanted if load_suite(name).kind is not SuiteKind.BENCHMARK)
    if config.suites and len(found) < len(config.suites):
        raise ConfigError("SUITE: a calibration asks contract suites alone")
    return found


def _slug(model: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", model.lower()).strip("-.")[:80] + "-measured" or "measured"


def _check_target(to: Path, *, merged: str | None) -> None:
    """Before anything is asked: a file that another calibration or a person wrote is not overwritten."""
    if to.is_dir() or not to.absolute().parent.is_dir():
        raise ConfigError(f"--to: {to} is no file that can be written")
    if to.exists() and (merged is None or not os.path.samefile(to, merged)):
        raise ConfigError(f"--to: {to} exists; --merge {to} adds to it, or name another file")
