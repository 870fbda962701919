"""Reference files: what an earlier run got, case by case, so that a later one can be paired with it.

JSON Lines. The first line is a header, then one line per case; it works for every suite, because only ``values`` are
kept:

    {"kvv_reference": 1, "model": ..., "run_id": ..., "created": ..., "source": ..., "data_sha256": {suite: ...}}
    {"suite": "toolcall", "case": "toolcall/0a1b...", "samples": [{"triggered": 1.0, ...}, null]}

A null sample had no conclusion; it keeps its place, so that occurrence is paired with occurrence.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kvv.cases.suite import REFUSED, ReferenceRun, declared, overlap
from kvv.core import Case, Outcome, Verdict
from kvv.decision.inputs import OfficialRates
from kvv.storage.files import new_beside, replacing

FORMAT = 1

#: a reference that knows fewer of a run's cases than this is of other data
LEAST_OVERLAP = 0.5

_HEADER_TEXTS = ("model", "run_id", "created", "source", "source_sha256", "results_sha256")
_HEADER_KEYS = frozenset({"kvv_reference", "suite", "data_sha256", "asked", "rules", *_HEADER_TEXTS})
_LINE_KEYS = frozenset({"suite", "case", "samples"})


class ReferenceError(ValueError):  # the builtin of this name is about weak references
    """A file that is no reference, or one of other cases; the message is one line that names file and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Where a reference comes from. ``created`` is an ISO 8601 UTC time, ``data_sha256`` is by suite, ``source`` free
    text.

    ``asked`` is by suite how the model was asked (sampling and thinking), absent for recordings of which nobody knows.
    ``source_sha256`` is the digest of the file of an imported recording, "" for a run of our own. ``results_sha256`` is
    ``Store.results_digest``: which measurement it is, "" in files of versions that did not write it. ``rules`` is how
    often rules about the model itself objected to its benchmark answers.
    """

    model: str
    run_id: str
    created: str
    source: str = ""
    source_sha256: str = ""
    results_sha256: str = ""
    data_sha256: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rules: OfficialRates = field(default_factory=OfficialRates)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFile:
    """``runs`` is by suite. A sample without a conclusion is an empty mapping there, in its place."""

    header: Header
    runs: Mapping[str, ReferenceRun]

    def same_run(self, other: ReferenceFile) -> bool:
        """Whether both are of one run: by its id, which a copy keeps; by its results, which a recording keeps when it
        is imported again; or because they say the same in everything. Equal scores alone make no one run: two official
        runs may both be right throughout."""
        marks = ("run_id", "source_sha256", "results_sha256")
        return self == other or any(
            getattr(self.header, mark) and getattr(self.header, mark) == getattr(other.header, mark) for mark in marks
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a reference file holds of one suite: ``usable`` of ``samples`` have values."""

    suite: str
    cases: int
    samples: int
    usable: int


def write_reference(path: Path, header: Header, verdicts: Iterable[tuple[Case, Verdict]]) -> list[Written]:
    """Write the ``values`` of every planned sample; by suite, what was written.

    Verdicts may come in any order. A sample never judged before one that was (a run cut short) is null. A failed
    request is null too: it does not say what the model would do. The file is there whole or not at
    all; ReferenceError where no sample has a value, OSError where it cannot be written.
    """
    samples = per_case(verdicts)
    written = _written(samples)
    if not any(suite.usable for suite in written):
        raise ReferenceError(
            f"{path} was not written: no benchmark sample was concluded, and a reference of nothing says nothing"
        )
    head: dict[str, Any] = {
        "kvv_reference": FORMAT,
        "model": header.model,
        "run_id": header.run_id,
        "created": header.created,
    }
    head |= {"source": header.source, "source_sha256": header.source_sha256, "data_sha256": dict(header.data_sha256)}
    if header.results_sha256:
        head["results_sha256"] = header.results_sha256
    if header.asked:
        head["asked"] = {suite: dict(fields) for suite, fields in header.asked.items()}
    if header.rules.answers:
        head["rules"] = {"answers": header.rules.answers, "objected": dict(header.rules.objected)}
    with replacing(path) as out:
        out.write(_line(head).encode())
        for (suite, case_id), found in sorted(samples.items()):
            out.write(_line({"suite": suite, "case": case_id, "samples": found}).encode())
    return written


def _written(samples: Mapping[tuple[str, str], Sequence[Mapping[str, float] | None]]) -> list[Written]:
    found = []
    for name in dict.fromkeys(suite for suite, _ in samples):
        cases = [judged for (suite, _), judged in samples.items() if suite == name]
        values = [value for judged in cases for value in judged]
        found.append(
            Written(
                suite=name,
                cases=len(cases),
                samples=len(values),
                usable=sum(value is not None and REFUSED not in value for value in values),
            )
        )
    return found


def check_writable(path: Path) -> None:
    """OSError where no reference could be put there. Nothing is left behind, and what is there stays."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is no file")
    unnamed, out = new_beside(path)
    out.close()
    unnamed.unlink()


def per_case(verdicts: Iterable[tuple[Case, Verdict]]) -> dict[tuple[str, str], list[Mapping[str, float] | None]]:
    """(suite, case id) -> the values of its samples, each in its place; of a refused request ``REFUSED``."""
    samples: dict[tuple[str, str], dict[int, Mapping[str, float] | None]] = {}
    for case, verdict in verdicts:
        if verdict.outcome is Outcome.SKIP:
            continue
        values = dict(verdict.values) if verdict.outcome is not Outcome.ERROR else {}
        if not values and verdict.reason == "valid-request-refused":
            values = {REFUSED: 1.0}
        samples.setdefault((case.suite, case.id), {})[verdict.sample] = values or None
    return {key: [found.get(k) for k in range(max(found) + 1)] for key, found in samples.items()}


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False) + "\n"


def read_reference(path: Path) -> ReferenceFile:
    """Read and check every line; ReferenceError names the first that is wrong."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ReferenceError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ReferenceError(f"{path}: is no UTF-8 text") from None
    header: Header | None = None
    cases: dict[str, dict[str, Sequence[Mapping[str, float]]]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = _object(line)
            if header is None:
                header = _header(entry)
            else:
                suite, case, samples = _case(entry)
                if case in cases.setdefault(suite, {}):
                    raise ValueError(f"case {case!r:.80} stands twice")
                cases[suite][case] = samples
        except ValueError as error:
            raise ReferenceError(f"{path}, line {number}: {error}") from None
    if header is None:
        raise ReferenceError(f"{path}: is empty")
    if not cases:
        raise ReferenceError(f"{path}: has no case")
    name = f"{header.model} ({header.run_id})" if header.run_id else header.model
    runs = {suite: ReferenceRun(name=name, model=header.model, cases=found) for suite, found in cases.items()}
    return ReferenceFile(header=header, runs=runs)


def _object(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON ({error.msg} at column {error.colno})") from None
    except (RecursionError, ValueError):
        raise ValueError("is no JSON that can be read") from None
    if not isinstance(entry, dict):
        raise ValueError("is no JSON object")
    return entry


def _header(entry: Mapping[str, Any]) -> Header:
    version = entry.get("kvv_reference")
    if version is None:
        raise ValueError('is no header: "kvv_reference" is missing (write one with --as-reference)')
    if version != FORMAT or isinstance(version, bool):
        raise ValueError(f"format {version!r:.40} is unknown, this version reads {FORMAT}")
    _only(entry, _HEADER_KEYS)
    texts = {name: entry.get(name, "") for name in _HEADER_TEXTS}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f'"{name}" is no text')
    if not texts["model"]:
        raise ValueError('"model" is missing')
    digests = entry.get("data_sha256") or {}
    if not isinstance(digests, Mapping) or not all(isinstance(value, str) for value in digests.values()):
        raise ValueError('"data_sha256" is no table of texts')
    asked = entry.get("asked") or {}
    if not isinstance(asked, Mapping) or not all(isinstance(fields, Mapping) for fields in asked.values()):
        raise ValueError('"asked" is no table of tables')
    return Header(**texts, data_sha256=digests, asked=asked, rules=_rules(entry.get("rules") or {}))


def _rules(entry: object) -> OfficialRates:
    try:
        return TypeAdapter(OfficialRates).validate_python(entry)
    except ValidationError:
        raise ValueError('"rules" is no table of "answers" and "objected" with whole numbers from 0') from None


def _case(entry: Mapping[str, Any]) -> tuple[str, str, list[Mapping[str, float]]]:
    _only(entry, _LINE_KEYS)
    suite, case, samples = entry.get("suite"), entry.get("case"), entry.get("samples")
    if not isinstance(suite, str) or not suite or not isinstance(case, str) or not case:
        raise ValueError('"suite" and "case" are no texts')
    if not isinstance(samples, list) or not samples:
        raise ValueError('"samples" is no list with entries')
    counts = declared(suite).counts
    return suite, case, [_values(sample, k, counts) for k, sample in enumerate(samples)]


def _values(sample: object, k: int, counts: Collection[str]) -> Mapping[str, float]:
    if sample is None:
        return {}
    if not isinstance(sample, dict):
        raise ValueError(f"samples[{k}] is neither an object nor null")
    found = {}
    for name, value in sample.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
            raise ValueError(f"samples[{k}].{name[:40]!r} is no finite number")
        if name in counts and (value < 0 or value != int(value)):
            raise ValueError(f"samples[{k}].{name[:40]!r} is {value!r:.40}, and a count is a whole number")
        if name not in counts and not 0 <= value <= 1:
            raise ValueError(f"samples[{k}].{name[:40]!r} is {value!r:.40}, and a score lies from 0 to 1")
        found[name] = float(value)
    return found


def _only(entry: Mapping[str, Any], known: Collection[str]) -> None:
    strange = sorted(set(entry) - set(known))
    if strange:
        raise ValueError(f"unknown field {strange[0]!r:.60}")


#: settings that say how a model was asked
ASKED = ("temperature", "top_p", "max_tokens", "thinking", "think_mode", "effort", "variant")


#: inputs of a case that name the program which worked or graded, with its version
PROGRAMS = ("agent", "grader")


def programs(cases: Iterable[Case]) -> dict[str, Any]:
    """Of a suite's cases, which all have the same ones; {} where no program stands between model and score."""
    first = next(iter(cases), None)
    return {} if first is None else {name: first.inputs[name] for name in PROGRAMS if name in first.inputs}


def asked_otherwise(reference: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """The first setting or program in which a reference was asked otherwise than this run, "" where none is known to
    be.
    """
    different = (
        name for name in (*ASKED, *PROGRAMS) if name in reference and name in own and reference[name] != own[name]
    )
    return next((f"{name} {reference[name]} there and {own[name]} here" for name in different), "")


def check_overlap(reference: ReferenceRun, suite: str, cases: Collection[str], *, path: Path | None = None) -> None:
    """ReferenceError when the reference knows fewer than half of the run's cases: it was made from other data."""
    share = overlap(reference.cases, cases)
    if share < LEAST_OVERLAP:
        where = str(path) if path is not None else f"reference {reference.name}"
        wanted = len(set(cases))
        raise ReferenceError(
            f"{where}: knows {round(share * wanted)} of the {wanted} cases of {suite}; it was made from other data or"
            " other prompts"
        )
