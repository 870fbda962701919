"""`kvv nightly`: measure, gate against the accepted baseline, measure again what alarmed, and say it in one line.

The result of a night comes from the run that this process made, never from a folder that lay there before.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from kvv.analysis.gate_report import as_json, document, headline, workflow_commands
from kvv.analysis.regression import GateResult
from kvv.cli.flags import flags_of
from kvv.cli.verbs.confirm import RUN_BOUNDS
from kvv.cli.verbs.documents import write
from kvv.cli.verbs.gate import DEFAULT_POLICY, regression_result
from kvv.cli.verbs.history import history
from kvv.cli.verbs.session import start
from kvv.core import Outcome
from kvv.core.exit_codes import ExitCode
from kvv.planning.config import ConfigError, RunConfig, load_config, revise
from kvv.planning.vendors_file import Vendor, read_vendors
from kvv.rendering.document import Document, DocumentTable, Estimate, Section, Unit, html, markdown
from kvv.rendering.escape import plain
from kvv.reporting.finalize import tell_github
from kvv.reporting.github import summary
from kvv.reporting.prometheus import NightSample
from kvv.reporting.prometheus import render as prometheus
from kvv.storage.baselines import accepted_baselines
from kvv.storage.files import replace_file
from kvv.storage.run_folder import vendor_of
from kvv.storage.run_summary import RunSummary
from kvv.storage.run_summary_reader import open_finished, side_of
from kvv.transport.notify import post_line

#: endpoints of one file
FLEET_MOST = 500
#: of each bound the run may use so much; what is left is for measuring again what alarmed
RUN_SHARE = 0.7
#: which exit code counts for many endpoints, the gravest first
GRAVEST = (
    ExitCode.INTERRUPTED,
    ExitCode.FAIL,
    ExitCode.ERROR,
    ExitCode.USAGE,
    ExitCode.BOUND,
    ExitCode.INCONCLUSIVE,
    ExitCode.PASS,
)
#: options of this verb and of the gate; the others are a run's
OWN = ("baselines", "last", "on_inconclusive", "on_drift", "allow_different", "waivers", "notify", "metrics", "fleet")
STATE = "nightly-alarms.json"
PAGE = "nightly"
NOTIFY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """One endpoint's night. ``run`` and ``folder`` are None where nothing was measured, ``result`` where there was
    nothing to compare with.
    """

    name: str
    vendor: str
    model: str
    code: int
    line: str
    folder: Path | None = None
    run: RunSummary | None = None
    result: GateResult | None = None

    @property
    def alarm(self) -> str:
        """What an alarm is known by: the gates that fail, or how the night ended; "" where there is none."""
        failing = [line.gate.id for line in self.result.lines if line.decision is Outcome.FAIL] if self.result else []
        return "" if self.code == ExitCode.PASS else ", ".join(failing) or ExitCode(self.code).name.lower()


def nightly(arguments: argparse.Namespace) -> int:
    """Exit code 0 no worse, 1 worse, 2 wrong options, 3 cannot tell (no baseline yet too), 4 our own error; of many
    endpoints the gravest.
    """
    fleet, suites = _fleet(arguments.suites)
    flags = {name: value for name, value in flags_of(arguments).items() if name not in OWN}
    config = load_config({**flags, "suites": suites or None, "tier": arguments.tier or "nightly"})
    if not fleet and not config.base_url:
        raise ConfigError("--base-url: say which endpoint, or give a file with a [[vendor]] table for each")
    sides = (
        read_vendors(fleet, config, least=1, most=FLEET_MOST)
        if fleet
        else [Vendor(name=vendor_of(config.base_url), config=config)]
    )
    out = Path(config.out)
    for suffix in (".html", ".md"):
        with suppress(FileNotFoundError):
            (out / f"{PAGE}{suffix}").unlink()
    nights: list[Night] = []
    budget = _Budget(config)
    for number, side in enumerate(sides):
        nights.append(_measured(side, arguments, budget.share(len(sides) - number), named=bool(fleet)))
        budget.spend(nights[-1])
        if nights[-1].code == ExitCode.INTERRUPTED:
            break
    return _told(arguments, nights, out)


def _fleet(given: Sequence[str]) -> tuple[Path | None, tuple[str, ...]]:
    """A file of endpoints, where the first word is one, and the suites."""
    files = [name for name in given if name.endswith(".toml")]
    if len(files) > 1:
        raise ConfigError(f"FLEET: one file of endpoints, got {len(files)}")
    return Path(files[0]) if files else None, tuple(name for name in given if name not in files)


# --- one endpoint ------------------------------------------------------------------------------------


class _Budget:
    """What is left of the bounds that all endpoints share."""

    def __init__(self, config: RunConfig) -> None:
        self._left: dict[str, float] = {name: getattr(config, name) for name in RUN_BOUNDS if getattr(config, name)}
        self._began = monotonic()

    def share(self, sides: int) -> Mapping[str, float]:
        """For the next of so many endpoints; a bound that is used up is a share of 0."""
        gone = {"deadline": monotonic() - self._began}
        return {name: max(0.0, left - gone.get(name, 0.0)) / sides for name, left in self._left.items()}

    def spend(self, night: Night) -> None:
        if night.run is None:
            return
        confirmed = night.result.confirmation.side if night.result and night.result.confirmation else None
        for run in filter(None, (night.run, confirmed)):
            service = run.service
            spent = {"max_cost": service.cost or 0.0, "max_requests": service.requests}
            spent["max_tokens_total"] = service.prompt_tokens + (service.completion_tokens.value or 0) * (
                service.completion_tokens.n
            )
            for name, much in spent.items():
                if name in self._left:
                    self._left[name] -= much


def _bounds(share: Mapping[str, float], part: float) -> dict[str, Any]:
    return {
        name: value * part if name in ("deadline", "max_cost") else int(value * part) for name, value in share.items()
    }


def _measured(side: Vendor, arguments: Namespace, share: Mapping[str, float], *, named: bool) -> Night:
    """Runs, then gates. What one endpoint's options lack is its own line where there are several."""
    model = side.config.model or ""

    def ended(code: int, line: str, **more: Any) -> Night:
        return Night(name=side.name, vendor=side.name, model=model, code=code, line=line, **more)

    if spent := [name for name, value in share.items() if value <= 0]:
        return ended(ExitCode.INCONCLUSIVE, f"not measured: --{spent[0].replace('_', '-')} is used up")
    kept: list[Path] = []
    try:
        config = revise(side.config, _bounds(share, RUN_SHARE))
        code = start(
            config,
            contract_only=False,
            tell=lambda _, view, folder: kept.append(folder),
            vendor=side.name if named else "",
        )
    except ConfigError as error:
        if not named:
            raise
        return ended(ExitCode.USAGE, f"not measured: {plain(str(error), 300)}")
    if not kept:
        return ended(code or ExitCode.ERROR, f"the run left no report (exit code {code})")
    folder = kept[0]
    with open_finished(str(folder), None) as (store, _):
        run = side_of(store)
    model = run.model
    measured = {"folder": folder, "run": run}
    if code == ExitCode.INTERRUPTED:
        return ended(code, f"interrupted; `kvv resume {plain(str(folder), 200)}` completes it", **measured)
    if not accepted_baselines(Path(arguments.baselines), vendor=run.vendor, model=run.model):
        worse = code == ExitCode.FAIL
        accept = f"no baseline yet: `kvv baseline accept {plain(str(folder), 200)}` makes this night the first one"
        return ended(
            ExitCode.FAIL if worse else ExitCode.INCONCLUSIVE,
            f"{'FAIL of the run itself' if worse else 'INCONCLUSIVE'}: {accept}",
            **measured,
        )
    try:
        result = regression_result(_gate_arguments(arguments, side.config, folder, _bounds(share, 1 - RUN_SHARE)))
    except ConfigError as error:
        return ended(ExitCode.USAGE, f"not gated: {plain(str(error), 300)}", **measured)
    code = result.exit_code(inconclusive_fails=arguments.on_inconclusive == "fail")
    page = document(result)
    for suffix, content in (
        (".md", markdown(page)),
        (".html", html(page)),
        (".json", as_json(result, code=code)),
    ):
        replace_file(folder / f"gate{suffix}", content)
    return ended(code, headline(result), result=result, **measured)


def _gate_arguments(arguments: Namespace, config: RunConfig, folder: Path, bounds: Mapping[str, Any]) -> Namespace:
    return Namespace(
        run=str(folder),
        out=None,
        baseline=None,
        baselines=arguments.baselines,
        last=arguments.last,
        confirm=None,
        confirm_now=True,
        policy=config.policy or DEFAULT_POLICY,
        waivers=arguments.waivers,
        on_inconclusive=arguments.on_inconclusive,
        on_drift=arguments.on_drift,
        allow_different=arguments.allow_different,
        yes=config.yes or None,
        **{name: bounds.get(name) for name in RUN_BOUNDS},
    )


# --- what is said of it ------------------------------------------------------------------------------


def _told(arguments: Namespace, nights: Sequence[Night], out: Path) -> int:
    """The page, the history, metrics, the notification, the line; the exit code."""
    codes = {night.code for night in nights}
    code = next(c for c in GRAVEST if c in codes)
    page = _page(nights, code)
    replace_file(out / f"{PAGE}.html", html(page))
    replace_file(out / f"{PAGE}.md", markdown(page))
    with suppress(ConfigError):  # nothing was ever concluded: there is no history
        history(Namespace(folder=str(out), metrics="primary", format="html", to=str(out / "history.html")))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        tell_github("".join(workflow_commands(n.result) for n in nights if n.result), summary(markdown(page)))
    if arguments.metrics:
        write(Path(arguments.metrics), prometheus(map(_sample, nights)), "--metrics")
    if arguments.notify and code != ExitCode.INTERRUPTED:
        _notify(arguments.notify, nights, out)
    print(plain(page.title, 1000))
    return code


def _page(nights: Sequence[Night], code: int) -> Document:
    rows = tuple(
        (
            ExitCode(night.code).name,
            night.name,
            night.model,
            plain(night.line, 400),
            Estimate(value=night.run.service.cost, exact=True, unit=Unit.USD, n=night.run.service.requests)
            if night.run
            else None,
            str(night.folder or "–"),
        )
        for night in sorted(nights, key=lambda night: GRAVEST.index(ExitCode(night.code)))
    )
    columns = ("verdict", "endpoint", "model", "what was found", "cost", "run")
    sections = [
        Section(title="Endpoints", tables=(DocumentTable(name="endpoints", columns=columns, rows=rows),)),
        *(
            Section(title=f"{night.name} {night.model}: {section.title}", tables=section.tables)
            for night in nights
            if night.result and night.code != ExitCode.PASS
            for section in document(night.result).sections
        ),
    ]
    return Document(title=_title(nights), lead=tuple(_lead(nights)), sections=tuple(sections), outcome=_outcome(code))


def _outcome(code: int) -> str:
    return {ExitCode.PASS: "pass", ExitCode.FAIL: "fail", ExitCode.ERROR: "error"}.get(ExitCode(code), "inconclusive")


def _title(nights: Sequence[Night]) -> str:
    night = f"night of {datetime.now(UTC):%Y-%m-%d}"
    if len(nights) == 1:
        return f"{nights[0].line} [{nights[0].name} {nights[0].model}, {night}]"
    counts = [(c.name, [n.name for n in nights if n.code == c]) for c in GRAVEST]
    told = [
        f"{len(names)} {word}"
        + (f" ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})" if word != "PASS" else "")
        for word, names in counts
        if names
    ]
    return f"{len(nights)} endpoints, {night}: {', '.join(told)}"


def _lead(nights: Sequence[Night]) -> list[str]:
    """One error rate over all endpoints: an alarm counts only where a second measurement repeats it."""
    expected = [night.result.false_alarms for night in nights if night.result]
    if not expected:
        return []
    return [
        f"false alarms over all {len(nights)} endpoints: {sum(e.confirmed for e in expected):.2f} in 100 nights"
        " on which nothing changed, since each alarm is measured a second time"
        f" ({sum(e.first for e in expected):.2f} before that)"
    ]


def _sample(night: Night) -> NightSample:
    gates = [(line.gate.id, _gate_code(line.decision)) for line in night.result.lines] if night.result else []
    return NightSample(vendor=night.vendor, model=night.model, code=night.code, run=night.run, gates=gates)


def _gate_code(outcome: Outcome) -> int:
    return {Outcome.PASS: 0, Outcome.SKIP: 0, Outcome.FAIL: 1, Outcome.ERROR: 4}.get(outcome, 3)


def _notify(where: str, nights: Sequence[Night], out: Path) -> None:
    """Each alarm once: not again on the nights that repeat it. A failure to notify is said and changes no verdict."""
    path = out / STATE
    known: dict[str, str] = {}
    with suppress(OSError, ValueError):
        loaded = json.loads(path.read_text("utf-8"))
        known = {str(key): str(value) for key, value in loaded.items()} if isinstance(loaded, dict) else {}
    now = {f"{night.vendor} {night.model}": night.alarm for night in nights}
    fresh = [n for n in nights if n.alarm and known.get(f"{n.vendor} {n.model}") != n.alarm]
    if fresh:
        problem = _sent(where, "\n".join(plain(f"{n.line} [{n.name} {n.model}]", 1000) for n in fresh))
        if problem:
            print(f"kvv nightly: --notify: {problem}", file=sys.stderr)
            now |= {f"{n.vendor} {n.model}": known.get(f"{n.vendor} {n.model}", "") for n in fresh}
    replace_file(path, json.dumps({**known, **now}, indent=1, sort_keys=True) + "\n")


def _sent(where: str, text: str) -> str:
    """To a web hook, or as a command's standard input; "" where it was taken, else why not."""
    if where.startswith("env:"):
        name, where = where[4:], os.environ.get(where[4:], "").strip()
        if not where:
            return f"the environment variable {plain(name, 80)} is not set"
    if where.startswith(("http://", "https://")):
        return post_line(where, text)
    try:
        words = shlex.split(where)
        done = subprocess.run(  # noqa: S603 - the user's own command
            words, input=text + "\n", text=True, timeout=NOTIFY_S, check=False, stdout=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"the command cannot be run ({type(error).__name__})"
    return "" if done.returncode == 0 else f"the command ended with {done.returncode}"
