"""Which faults act on which exchange: ids with variations, such as ``B19:stream+1in4``.

Variations narrow a fault down and combine with ``+``: ``stream`` and ``nonstream``, ``tools`` (only requests that
declare tools), ``turn2`` (only from the second assistant turn on), ``busyN`` (only while more than N requests are under
way), ``1inN`` (one request in each run of N, the place drawn from the seed).
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvv.mockserver.faults.model import ServerFault, Turn

_ONE_IN = re.compile(r"1in([1-9]\d{0,5})")
_BUSY = re.compile(r"busy([1-9]\d{0,4})")
_FLAGS = ("stream", "nonstream", "tools", "turn2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """A fault with its variations; ``one_in`` is 1 when it acts on every request, ``above`` 0 at any load."""

    fault: ServerFault
    flags: frozenset[str] = frozenset()
    one_in: int = 1
    above: int = 0

    def acts_on(self, turn: Turn) -> bool:
        """Whether this exchange is to be faulted."""
        mode = "stream" if turn.streams else "nonstream"
        if self.fault.mode not in ("both", mode):
            return False
        if ("stream" in self.flags and not turn.streams) or ("nonstream" in self.flags and turn.streams):
            return False
        if "tools" in self.flags and not turn.has_tools:
            return False
        if "turn2" in self.flags and turn.number < 2:
            return False
        if self.above and turn.active <= self.above:
            return False
        return self.one_in == 1 or turn.ordinal % self.one_in == self._place(turn)

    def _place(self, turn: Turn) -> int:
        block = turn.ordinal // self.one_in
        digest = hashlib.sha256(f"{turn.config.seed}\0{self.fault.id}\0{block}".encode()).digest()
        return int.from_bytes(digest[:4], "big") % self.one_in


def select(wanted: tuple[str, ...], known: Mapping[str, ServerFault]) -> tuple[Selected, ...]:
    """The selection for these ids; raises ValueError for an unknown id or variation."""
    return tuple(_select(entry, known) for entry in wanted)


def _select(entry: str, known: Mapping[str, ServerFault]) -> Selected:
    prefix, rest = ("quirk:", entry[6:]) if entry.startswith("quirk:") else ("", entry)
    name, _, variations = rest.partition(":")
    fault = known.get(prefix + name)
    if fault is None:
        raise ValueError(f"unknown fault {prefix + name!r}")
    flags: set[str] = set()
    one_in, above = 1, 0
    for variation in filter(None, variations.split("+")):
        if found := _ONE_IN.fullmatch(variation):
            one_in = int(found[1])
        elif found := _BUSY.fullmatch(variation):
            above = int(found[1])
        elif variation in _FLAGS:
            flags.add(variation)
        else:
            raise ValueError(f"unknown variation {variation!r} of fault {name}")
    return Selected(fault=fault, flags=frozenset(flags), one_in=one_in, above=above)
