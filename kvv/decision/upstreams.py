"""Who answered behind one name. Several upstreams in one benchmark make its score the score of nobody:
``mixed-upstream``.

What tells upstreams apart, of the answers to a benchmark's questions:

- the provider that a gateway names (a body's ``provider`` field, a ``*-provider`` header), over all benchmarks of the
run. An answer
  that names none says nothing;
- the ``model`` that the answers name, within one suite: every request of a suite asks for the same name in the same
way, and a server
  repeats it or resolves it, always alike. Two names are two models or two servers.

What does not: ``system_fingerprint``. It names a backend configuration: it changes with a deploy, and some servers have
one a replica, with the same weights behind each. It is reported and decides nothing. Refused and failed requests count
for nobody: a gateway that was turned away by one provider and answered by another was answered by one. Contract suites
are left out, which ask for other models on purpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kvv.core import Upstream

#: names that a reason spells out
NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredBy:
    """``count`` answered requests of one suite ("" for those of none), and who says to have answered them."""

    suite: str
    upstream: Upstream
    count: int


def find_mixed(found: Sequence[AnsweredBy], benchmarks: Collection[str]) -> dict[str, str]:
    """Benchmark suite -> what was seen, for those whose answers came from more than one upstream."""
    asked = [one for one in found if one.suite in benchmarks]
    providers = _counted(asked, "provider")
    if len(providers) > 1:
        return {
            suite: f"{len(providers)} upstreams answered behind one name ({_words(providers)})" for suite in benchmarks
        }
    models = {suite: _counted([one for one in asked if one.suite == suite], "model") for suite in benchmarks}
    return {
        suite: f"the answers name {len(names)} models behind one name ({_words(names)})"
        for suite, names in models.items()
        if len(names) > 1
    }


def count_providers(found: Sequence[AnsweredBy]) -> dict[str, int]:
    """Provider behind the endpoint -> answers, of the whole run; one that names none counts as the endpoint itself,
    ``unnamed``.
    """
    names = _counted(found, "provider")
    return dict(names) or ({"unnamed": total} if (total := sum(one.count for one in found)) else {})


def fingerprints(found: Sequence[AnsweredBy]) -> dict[str, int]:
    """system_fingerprint -> answers, of the whole run; {} where none is sent."""
    return dict(_counted(found, "system_fingerprint"))


def _counted(found: Sequence[AnsweredBy], name: str) -> Mapping[str, int]:
    """The field's values, the most frequent first. Spelling with other capitals is the same name, shown as it first
    came.
    """
    counts: Counter[str] = Counter()
    shown: dict[str, str] = {}
    for one in found:
        value = (getattr(one.upstream, name) or "").strip()
        if value:
            key = value.casefold()
            shown.setdefault(key, value)
            counts[key] += one.count
    return {shown[key]: count for key, count in counts.most_common()}


def _words(names: Mapping[str, int]) -> str:
    """Names are an endpoint's own words: cut short here, made harmless where they are shown."""
    some = ", ".join(f"{name[:60]} {count}" for name, count in list(names.items())[:NAMED])
    return some + (", ..." if len(names) > NAMED else "")
