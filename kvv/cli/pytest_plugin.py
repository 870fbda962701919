"""`pytest --kvv-run DIR`: a finished run as test items, one per contract case and per gate, and one for the verdict.

Loaded by pytest wherever kvv is installed: without the option it adds two lines of help and imports nothing more.
Failure and error are told apart as in junit.xml: the vendor is wrong and it counts (failed); nothing could be decided,
because of us or of the network (error); not claimed (skipped); a failure that is waived or does not count (xfailed).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kvv.storage.view import CheckRow, RunView

OPTION = "--kvv-run"
STORE_NAME = "store.sqlite"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("kvv").addoption(
        OPTION, action="append", default=[], metavar="DIR", help="show a finished kvv run as test items (repeatable)"
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Named runs are collected instead of the default paths, and beside paths that were named."""
    if not config.getoption(OPTION):
        return
    stores = [str(_store(name)) for name in config.getoption(OPTION)]
    named = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
    config.args = [*named, *(store for store in stores if store not in named)]


def _store(name: str) -> Path:
    """UsageError, which pytest prints in one line with exit code 4, for a folder that is no run."""
    path = Path(name)
    path = path if path.name == STORE_NAME else path / STORE_NAME
    if not path.is_file():
        raise pytest.UsageError(f"{OPTION}: {name} holds no {STORE_NAME}: this is no run folder")
    return path.resolve()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    wanted = parent.config.getoption(OPTION)
    if not wanted or file_path.name != STORE_NAME or file_path.resolve() not in {_store(name) for name in wanted}:
        return None
    found: RunFile = RunFile.from_parent(parent, path=file_path)
    return found


class RunFile(pytest.File):
    """One run's store."""

    def collect(self) -> Iterator[pytest.Item]:
        """Names are case and gate ids; the reports' own order."""
        from kvv.planning.config import ConfigError
        from kvv.storage.run_summary_reader import open_finished
        from kvv.storage.snapshot import build_view
        from kvv.storage.store import StoreError

        try:
            with open_finished(str(self.path.parent), None, OPTION) as (store, _):
                view = build_view(store)
        except (ConfigError, StoreError) as error:
            raise self.CollectError(str(error)) from None
        for subject in subjects(view):
            yield RunItem.from_parent(self, name=subject.name, subject=subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What one item shows. ``kind``: passed, failed, error, skipped or xfailed."""

    name: str
    kind: str
    message: str
    text: str = ""


def subjects(view: RunView) -> Iterator[Subject]:
    """Contract cases (benchmark samples are no tests, their gates are), gates, and the verdict, which passes only with
    the run.
    """
    from kvv.rendering.escape import plain

    for row in view.checks:
        if row.case.suite not in view.benchmarks:
            yield _case(view, row)
    for gate in view.decision.gates:
        waived = gate.reason.startswith("waived:")
        kind = "xfailed" if waived else _kind(gate.decision.value)
        yield Subject(
            name=f"gate/{plain(gate.id, 200)}", kind=kind, message=plain(gate.reason, 800), text=plain(gate.method, 200)
        )
    outcome = view.decision.outcome.value
    why = "\n".join(plain(reason, 600) for reason in view.decision.why[:20])
    yield Subject(name="verdict", kind=_kind(outcome), message=plain(view.decision.headline, 1000), text=why)


def _case(view: RunView, row: CheckRow) -> Subject:
    from kvv.rendering.escape import block, plain

    verdict = row.verdict
    kind = _kind(verdict.outcome.value)
    message = f"{verdict.outcome.value}: {verdict.reason or 'no reason given'}"
    if kind == "failed" and not view.counts(row):
        kind, message = (
            "xfailed",
            f"{'waived' if row.waived else f'{row.level.value}-level, shown only'}: {verdict.reason}",
        )
    parts = [verdict.detail, f"requirement: {row.case.requirement}", f"source: {row.case.source}"]
    parts += [f"expected: {row.expected}"] if row.expected else []
    parts += [f"evidence: {e.exchange}: {e.excerpt}" for e in verdict.evidence[:3]]
    parts += [row.curl] if row.curl else []
    return Subject(
        name=plain(row.id, 300),
        kind=kind,
        message=plain(message, 400),
        text=block("\n".join(filter(None, parts)), 4_000),
    )


def _kind(outcome: str) -> str:
    return {"pass": "passed", "fail": "failed", "skip": "skipped"}.get(outcome, "error")


class RunItem(pytest.Item):
    """Replays one judgement; nothing is sent."""

    def __init__(self, *, subject: Subject, **more: Any) -> None:
        super().__init__(**more)
        self.subject = subject

    def setup(self) -> None:
        match self.subject.kind:
            case "skipped":
                pytest.skip(self.subject.message)
            case "error":
                raise Undecided(self.subject)

    def runtest(self) -> None:
        match self.subject.kind:
            case "failed":
                raise VendorWrong(self.subject)
            case "xfailed":
                pytest.xfail(self.subject.message)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, VendorWrong | Undecided):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class _Shown(Exception):
    def __init__(self, subject: Subject) -> None:
        super().__init__(f"{subject.message}\n{subject.text}".rstrip())


class VendorWrong(_Shown):
    """The endpoint broke what it must keep."""


class Undecided(_Shown):
    """INCONCLUSIVE or an error of ours: neither passed nor failed."""
