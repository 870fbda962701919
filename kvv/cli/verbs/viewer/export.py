"""`kvv view --export`: the same pages as files that link to each other, with the board as index."""

from __future__ import annotations

from pathlib import Path

from kvv.cli.verbs.viewer import pages
from kvv.cli.verbs.viewer.app import render, script, style
from kvv.cli.verbs.viewer.library import Library
from kvv.cli.verbs.viewer.links import StaticLinks
from kvv.cli.verbs.viewer.pages import NoSuchPage
from kvv.cli.verbs.viewer.samples import Filters, scan
from kvv.core import Outcome
from kvv.core.usage_error import ConfigError
from kvv.storage.files import replace_file
from kvv.storage.store import StoreError

#: samples of one run that have a page: those that are no pass
CASES = 300


def export(library: Library, target: Path, *, public: bool = False) -> int:
    """Writes the site into an empty or new folder; how many pages. ``public`` hides addresses and writes no request,
    no answer and no curl line: only verdicts, causes and numbers.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"--export: {target} is no empty folder; name a new one")
    cards = [card for card in library.cards() if card.head]
    if not cards:
        raise ConfigError(f"--export: {library.root} holds no finished run")
    cases = [] if public else [place for card in cards for place in _failed(library, card.id)]
    links = StaticLinks([card.id for card in cards], cases, [(card.vendor, card.model) for card in cards])
    files = {"view.css": style(), "view.js": script()}
    files["index.html"] = render(pages.board_page(library, {}), links, public=public)
    files["runs.html"] = render(pages.runs_page(library, {}), links, public=public)
    for card in cards:
        files[links.run(card.id)] = render(pages.run_page(library, card.id, {}), links, public=public)
        name = links.endpoint(card.vendor, card.model)
        if name not in files:
            files[name] = render(pages.endpoint_page(library, card.vendor, card.model), links, public=public)
    for run, case, sample in cases:
        try:
            page = pages.case_page(library, run, case, {"n": str(sample), "outcome": Outcome.FAIL.value})
        except NoSuchPage:
            continue
        files[links.case(run, case, sample)] = render(page, links, public=public)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            replace_file(target / name, text, "replace")
    except OSError as error:
        raise ConfigError(f"--export: cannot write to {target}: {error.strerror or error}") from error
    return sum(name.endswith(".html") for name in files)


def _failed(library: Library, run: str) -> list[tuple[str, str, int]]:
    try:
        with library.store(run) as store:
            page = scan(store, Filters(outcome=Outcome.FAIL.value), limit=CASES)
    except StoreError:
        return []
    return [(run, sample.case.id, sample.verdict.sample) for sample in page.rows]
