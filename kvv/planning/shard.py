"""Splitting a run by cluster: `--shard i/n`. Pure.

What depends on each other stays together (a BEAM conversation and its cache, a problem's repeats), so that every
shard's clusters are whole.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kvv.core import Case

#: more shards than this are a slip of the pen
LIMIT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """``index`` counts from 1 to ``of``."""

    index: int
    of: int

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


def parse_shard(text: str) -> Shard:
    """``"2/4"``; ValueError with a sentence for anything else."""
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
    if not found:
        raise ValueError(f"wants I/N such as 2/4, got {text[:40]!r}")
    shard = Shard(index=int(found[1]), of=int(found[2]))
    if not 1 <= shard.index <= shard.of <= LIMIT:
        raise ValueError(f"wants 1 <= I <= N <= {LIMIT}, got {shard}")
    return shard


def unit_of(case: Case) -> str:
    """What stays together: the block that shares a prompt's beginning, else the cluster, else the case."""
    return str(case.inputs.get("block") or case.cluster or case.id)


def split(cases: Sequence[Case], shard: Shard) -> list[Case]:
    """This shard's cases, in the order given. Units are dealt out by the order of their hashes: sizes differ by one
    unit at most, every case is in exactly one shard, and neither the order of cases nor a process's hash seed
    matters."""
    units = sorted(
        {unit_of(case) for case in cases},
        key=lambda unit: hashlib.sha256(unit.encode("utf-8", "surrogatepass")).digest(),
    )
    mine = {unit for number, unit in enumerate(units) if number % shard.of == shard.index - 1}
    return [case for case in cases if unit_of(case) in mine]


def plan_digest(samples: Mapping[str, int] | Iterable[tuple[str, int]]) -> str:
    """SHA-256 of all planned case ids with their numbers of samples, whatever their order: what the shards of one run
    must add up to.
    """
    pairs = sorted(dict(samples).items())
    return hashlib.sha256("".join(f"{case}\0{n}\n" for case, n in pairs).encode("utf-8", "surrogatepass")).hexdigest()
