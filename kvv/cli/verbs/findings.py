"""`kvv show --rule RULE`: every exchange that a wire rule objected to, with the frames and bytes it objected to."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kvv.cli.verbs.opening import open_run
from kvv.core import Finding
from kvv.planning.config import ConfigError
from kvv.rendering.escape import bound_text, plain, uncommanding_json
from kvv.storage.store import Store, StoredExchange

#: findings printed for people; --json has all of them
LISTED = 200
#: characters of one frame's data
DATA_LIMIT = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One objection and where it stands; ``data`` is the frame as it came, "" where it was not kept."""

    finding: Finding
    stored: StoredExchange
    offset_ms: float | None
    data: str

    def facts(self) -> dict[str, object]:
        finding, exchange = self.finding, self.stored.exchange
        return {
            "rule": finding.rule,
            "level": finding.level.value,
            "area": finding.area.value,
            "kind": finding.kind.value,
            "message": finding.message,
            "exchange": exchange.identity.key,
            "attempt": exchange.attempt,
            "started": exchange.started,
            "status": exchange.status,
            "ids": {name: value for name, value in exchange.headers if "id" in name.split("-")},
            "frame": finding.frame,
            "offset_ms": self.offset_ms,
            "data": self.data,
            "excerpt": finding.excerpt,
            "causes": list(finding.causes),
        }

    def lines(self) -> Iterator[str]:
        finding, exchange = self.finding, self.stored.exchange
        tried = f" attempt {exchange.attempt}" if exchange.attempt > 1 else ""
        yield plain(f"({finding.level}) {finding.rule}: {finding.message}")
        yield plain(f"  exchange {exchange.identity.key}{tried}, {exchange.started}, HTTP {exchange.status}")
        if finding.frame is not None:
            at = f" at {self.offset_ms:.0f} ms" if self.offset_ms is not None else ""
            yield plain(f"  frame {finding.frame}{at}: {self.data or finding.excerpt or '(not kept)'}", DATA_LIMIT)
        elif finding.excerpt:
            yield plain(f"  bytes: {finding.excerpt}", DATA_LIMIT)


def show_findings(arguments: argparse.Namespace) -> int:
    """CASE, where it is given, is the run: ``kvv show RUN --rule RULE``. RULE may be a pattern such as ``usage/*``."""
    if arguments.export:
        raise ConfigError("--export: is for one case, not for a rule")
    with open_run(arguments.case or arguments.run, arguments.out) as (store, _):
        known = sorted({group.rule for group in store.finding_groups()})
        if not any(fnmatchcase(rule, arguments.rule) for rule in known):
            raise ConfigError(
                f"--rule: no finding of {arguments.rule!r} in this run; rules with findings:"
                f" {', '.join(known) or 'none'}"
            )
        if arguments.json_output:
            print(uncommanding_json(json.dumps([found.facts() for found in _found(store, arguments.rule)], indent=1)))
            return 0
        number = 0
        for number, found in enumerate(_found(store, arguments.rule), start=1):
            if number <= LISTED:
                print("\n".join(found.lines()))
    if number > LISTED:
        print(f"... and {number - LISTED} more; --json prints all")
    return 0


def _found(store: Store, rule: str) -> Iterator[Found]:
    for stored in store.exchanges(rule=rule):
        frames = {frame.number: frame for frame in stored.exchange.frames}
        for finding in stored.findings:
            if not fnmatchcase(finding.rule, rule):
                continue
            frame = frames.get(finding.frame) if finding.frame is not None else None
            data = "" if frame is None else bound_text(frame.data.decode("utf-8", "backslashreplace"), DATA_LIMIT)
            yield Found(finding=finding, stored=stored, offset_ms=None if frame is None else frame.offset_ms, data=data)
