"""Answer keys for the reference endpoint, from the suites' own data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kvv.cases.answers import KeyEntry
from kvv.cases.suite import load_suite, suite_ids
from kvv.data import DataError, load_spec
from kvv.data import load as load_data
from kvv.data.pictures import sent_digest
from kvv.planning.config import ConfigError

if TYPE_CHECKING:
    from kvv.mockserver import KeyedAnswer


def answer_entries(entries: Iterable[KeyEntry]) -> tuple[KeyedAnswer, ...]:
    """Key entries in the reference endpoint's own form; it knows nothing of suites.

    Reads and encodes the entries' pictures; an entry with one that cannot be sent is left out, for nobody can ask with
    it.
    """
    from kvv.mockserver import KeyedAnswer, Reply

    found: list[KeyedAnswer] = []
    for entry in entries:
        try:
            images = tuple(sent_digest(picture) for picture in entry.pictures)
        except DataError:
            continue
        right = Reply(text=entry.right_text, tool=entry.right_tool, turns=entry.right_turns)
        wrong = Reply(text=entry.wrong_text, tool=entry.wrong_tool, turns=entry.wrong_turns)
        found.append(
            KeyedAnswer(
                suite=entry.suite,
                case=entry.case,
                prompt=entry.prompt,
                right=right,
                wrong=wrong,
                images=images,
                ease=entry.ease,
            )
        )
    return tuple(found)


def keyed_suites(paths: Mapping[str, str]) -> Sequence[KeyEntry]:
    """The key of every suite that has data: from ``paths[suite]``, else from the shipped fixtures. Raises
    ConfigError.
    """
    for name in paths:
        if name not in suite_ids():
            raise ConfigError(f"--data: no suite {name!r}; known: {', '.join(suite_ids())}")
    entries: list[KeyEntry] = []
    for name in suite_ids():
        suite = load_suite(name)
        path = paths.get(name)
        if suite.dataset is None or (path is None and suite.dataset_optional):
            continue
        try:
            if path is None and not load_spec(suite.dataset).fixture:
                continue
            entries += suite.answer_key(load_data(suite.dataset, path=path, fixture=path is None))
        except DataError as error:
            raise ConfigError(f"--data {name}: {error}") from error
    return entries
