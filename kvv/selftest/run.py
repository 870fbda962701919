"""The runs behind the matrix: clean in each setting, then every fault alone, several at a time in one process."""

from __future__ import annotations

import asyncio
import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from kvv.mockserver.faults import FAULTS, NOT_SHOWABLE
from kvv.mockserver.faults.selection import select
from kvv.selftest.drive import WINDOW, Observed, Planned, SelftestSetting, every_case, observe
from kvv.selftest.matrix import Clean, Matrix, MatrixRow, clean_row, judge
from kvv.selftest.table import FaultSpec, FaultTable, SettingSpec, StatisticalFault, Variation

#: endpoints that are asked at the same time: while one waits out a hang, others work
AT_ONCE = 5

Told = Callable[[Clean | MatrixRow], None]


def run(table: FaultTable, faults: Sequence[str] = (), told: Told | None = None) -> Matrix:
    """The matrix of these faults (with variations, as ``B19:stream``), or of all with the table's variations.

    Raises ValueError for a fault that the catalogue does not have.
    """
    known = {entry.selected: entry for entry in table.variation}
    wanted = [known.get(name) or Variation.model_validate({"as": name}) for name in faults]
    unknown = [entry.fault for entry in wanted if entry.fault not in FAULTS]
    if unknown:
        raise ValueError(f"no fault {unknown[0]!r}; `kvv list faults` names them")
    select(tuple(entry.selected for entry in wanted), FAULTS)  # raises for a variation that there is not
    everything = [*(Variation.model_validate({"as": name}) for name in FAULTS), *table.variation]
    return asyncio.run(_Runner(table, whole=not wanted, told=told or (lambda _: None)).matrix(wanted or everything))


class _Runner:
    def __init__(self, table: FaultTable, *, whole: bool, told: Told) -> None:
        self._table = table
        self._whole = whole
        self._told = told
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._clean: dict[str, Observed] = {}

    async def matrix(self, wanted: Sequence[Variation]) -> Matrix:
        settings = {self._table.spec(entry.fault).setting: None for entry in wanted}
        if self._whole:
            settings = dict.fromkeys(self._table.settings)
        by_setting = {name: [one for one in wanted if self._table.spec(one.fault).setting == name] for name in settings}
        cleans = await asyncio.gather(*(self._clean_run(name, entries) for name, entries in by_setting.items()))
        rows = await asyncio.gather(*map(self._row, wanted))
        return Matrix(clean=cleans, rows=rows, not_showable=NOT_SHOWABLE if self._whole else {})

    async def _clean_run(self, name: str, entries: Sequence[Variation]) -> Clean:
        """Every case of every suite when all faults are asked for, else the cases that these faults need."""
        spec = self._table.settings[name]
        setting = _setting(spec)
        globs = ["*"] if self._whole else list({glob for entry in entries for glob in self._globs(entry)})
        gates = [gate for entry in entries if (gate := self._gate(entry)) is not None]
        async with self._slots:
            self._clean[name] = await observe(setting, (), [*matching(setting, globs), *_sampled(setting, gates)])
        observed = self._clean[name]
        names = [*(case for case in observed.verdicts), *(rule for rule, _, _ in observed.findings)]
        row = clean_row(
            name,
            observed,
            spec.stated,
            [one for one in names if any(fnmatch.fnmatchcase(one, glob) for glob in spec.stated)],
        )
        self._told(row)
        return row

    async def _row(self, entry: Variation) -> MatrixRow:
        row = await self._asked(entry, self._table.spec(entry.fault))
        self._told(row)
        return row

    async def _asked(self, entry: Variation, spec: FaultSpec) -> MatrixRow:
        setting, gate = _setting(self._table.settings[spec.setting]), self._gate(entry)
        cases = matching(setting, self._globs(entry))
        selected = entry.selected if ":" in entry.selected else spec.selected or entry.selected
        samples = _sampled(setting, [gate]) if gate else []
        async with self._slots:
            observed = await observe(
                setting, (selected,), [*cases, *samples], window=spec.window or WINDOW, itl_ms=spec.itl_ms
            )
        return judge(
            entry.selected, spec, self._table.areas(entry.fault), observed, self._clean[spec.setting], gate=gate
        )

    def _globs(self, entry: Variation) -> Sequence[str]:
        return (*entry.cases, *self._table.cases(entry.fault))

    def _gate(self, entry: Variation) -> StatisticalFault | None:
        return entry.gate or (self._table.spec(entry.fault).gate if ":" not in entry.selected else None)


def _setting(spec: SettingSpec) -> SelftestSetting:
    claims = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in spec.claims.items())
    return SelftestSetting(
        profile=spec.profile, surface=spec.surface, variant=spec.variant, claims=claims, tokenizer=spec.tokenizer
    )


def matching(setting: SelftestSetting, globs: Sequence[str]) -> list[Planned]:
    """The setting's cases that any glob matches, in plan order."""
    places = frozenset().union(*(_places(setting, glob) for glob in globs))
    return [planned for at, planned in enumerate(every_case(setting)) if at in places]


@cache
def _places(setting: SelftestSetting, glob: str) -> frozenset[int]:
    """Most globs are asked for every fault, and the cases are a thousand."""
    fits = re.compile(fnmatch.translate(glob)).match
    return frozenset(at for at, planned in enumerate(every_case(setting)) if fits(planned.case.id))


def _sampled(setting: SelftestSetting, gates: Sequence[StatisticalFault]) -> list[Planned]:
    """The cases of the gates, each as often as its gate wants: as samples from 1 on."""
    times: dict[str, tuple[Planned, int]] = {}
    for gate in gates:
        for planned in matching(setting, [gate.case]):
            times[planned.case.id] = (planned, max(gate.n, times.get(planned.case.id, (planned, 0))[1]))
    return [
        Planned(one.suite, replace(one.case, sample=number)) for one, n in times.values() for number in range(1, n + 1)
    ]
