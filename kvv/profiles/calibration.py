"""From measurements of an official endpoint to a profile file: what repeats on another day becomes a rule.

``merge`` joins measurements, ``profile_table`` writes the file's tables. A fact that was seen on one day alone stays
evidence; one that was not the same every time is ``either``, or not claimed. What the measurement adds to the profile
that it extends only warns until a person signs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kvv.profiles.profile import NO_SWITCH, Calibrated, Measured, OfficialFailure, Profile

#: measurements that make a rule lie so far apart
APART = timedelta(hours=20)
#: how long a measurement holds after its last day
HOLDS = timedelta(days=60)
#: claims that a probe of their name decides by what was obeyed
CLAIMS = ("tools", "required", "named", "parallel", "json_object", "json_schema", "logprobs", "n", "dynamic_tools")
#: token overheads: the profile's name for each, and the two probes whose difference it is
OVERHEADS = {
    "required_note": ("tokens/required", "tokens/auto"),
    "none_note": ("tokens/none", "tokens/auto"),
    "json_object_note": ("tokens/json-object", "tokens/plain"),
}


def is_rule(rounds: Sequence[datetime]) -> bool:
    """Whether the measurements lie on different days."""
    return bool(rounds) and max(rounds) - min(rounds) >= APART


def merge(earlier: Iterable[Measured], later: Iterable[Measured]) -> tuple[Measured, ...]:
    """Both measurements' counts, per fact."""
    found = {one.fact: one for one in earlier}
    for one in later:
        old = found.get(one.fact)
        found[one.fact] = one if old is None else _sum(old, one)
    return tuple(found[name] for name in sorted(found))


def _sum(old: Measured, new: Measured) -> Measured:
    obeyed = None if old.obeyed is None and new.obeyed is None else (old.obeyed or 0) + (new.obeyed or 0)
    return new.model_copy(
        update={
            "asked": old.asked + new.asked,
            "answered": old.answered + new.answered,
            "obeyed": obeyed,
            "values": tuple(sorted({*old.values, *new.values})),
            "texts": tuple(sorted({*old.texts, *new.texts})),
            "rounds": (*old.rounds, *new.rounds),
        }
    )


def merge_failures(
    earlier: Iterable[OfficialFailure], failed: Iterable[str], asked: Iterable[str], now: datetime
) -> tuple[OfficialFailure, ...]:
    """What failed before and was asked again without failing is no rule any more: it goes."""
    again, all_asked = set(failed), set(asked)
    kept = {one.id: one for one in earlier if one.id in again or one.id not in all_asked}
    for name in again:
        old = kept.get(name)
        kept[name] = OfficialFailure(
            id=name,
            seen=(old.seen if old else 0) + 1,
            asked=(old.asked if old else 0) + 1,
            rounds=(*(old.rounds if old else ()), now),
        )
    return tuple(kept[name] for name in sorted(kept))


def profile_table(base: Profile, calibrated: Calibrated, *, extends: str) -> dict[str, Any]:
    """The file's tables over those of ``base``, the profile that it extends. TOML has no null: absent is unknown."""
    facts = {one.fact: one for one in calibrated.evidence if is_rule(one.rounds)}
    claims, added = _claims(base, facts)
    table: dict[str, Any] = {
        "title": f"{base.title}, measured",
        "source": calibrated.base_url,
        "extends": extends,
    }
    if days := [moment for one in calibrated.evidence for moment in one.rounds]:
        table["checked"] = max(days).date()
    if window := _one_value(facts.get("limits/window")):
        table["context_window"] = window
    for name, part in (
        ("claims", claims),
        ("decoding", _decoding(base, facts)),
        ("thinking", _thinking(base, facts)),
        ("tokens", _tokens(facts)),
        ("wire", _wire(base, facts)),
    ):
        if part:
            table[name] = part
    table["calibrated"] = calibrated.model_copy(
        update={"claims": tuple(added), "parameters": any(name.startswith("parameters/") for name in facts)}
    ).model_dump(mode="json", exclude_defaults=True)
    table["calibrated"].setdefault("signed_by", "")
    return table


def _always(one: Measured | None) -> bool:
    return one is not None and one.answered == one.asked and one.obeyed in (None, one.asked)


def _claims(base: Profile, facts: Mapping[str, Measured]) -> tuple[dict[str, Any], list[str]]:
    """The claims that differ from the base's, and those that the measurement adds."""
    changed: dict[str, Any] = {}
    idle = set(base.claims.not_thinking)
    for name in CLAIMS:
        on, off = facts.get(f"claims/{name}/thinking-on"), facts.get(f"claims/{name}/thinking-off")
        plain = facts.get(f"claims/{name}")
        seen = [one for one in (plain, on, off) if one is not None]
        if not seen:
            continue
        holds = _always(on) if on else _always(plain)
        only_off = not holds and _always(off)
        idle = (idle | {name}) if only_off else idle - {name}
        if (holds or only_off) != getattr(base.claims, name):
            changed[name] = holds or only_off
    added = sorted(name for name, value in changed.items() if value)
    if idle != set(base.claims.not_thinking):
        changed["not_thinking"] = sorted(idle)
    if added:
        changed["second_hand"] = sorted({*base.claims.second_hand, *added})
    return changed, added


def _decoding(base: Profile, facts: Mapping[str, Measured]) -> dict[str, Any]:
    """The three sets anew, from every value that was probed; the base's own entries hold where none was."""
    sets: dict[str, list[dict[str, Any]]] = {"accepted": [], "either": [], "rejected": []}
    warned: list[dict[str, Any]] = []
    probed = [one for name, one in facts.items() if name.startswith("parameters/")]
    if not probed:
        return _limit(facts)
    for one in probed:
        entry = {**one.fields, **({"thinking": one.thinking} if one.thinking else {})}
        kind = "accepted" if one.answered == one.asked else "either" if one.answered else "rejected"
        sets[kind].append(entry)
        if kind != "either" and entry not in [dict(known) for known in getattr(base.decoding, kind)]:
            warned.append(entry)
    known = [entry for entries in sets.values() for entry in entries]
    for kind, entries in sets.items():
        entries += [dict(entry) for entry in getattr(base.decoding, kind) if dict(entry) not in known]
    return {**sets, "warned": warned, **_limit(facts)}


def _limit(facts: Mapping[str, Measured]) -> dict[str, Any]:
    """The most stop sequences that were taken, where more were refused."""
    counts = {int(name.rpartition("/")[2]): one for name, one in facts.items() if name.startswith("limits/stop/")}
    taken = [count for count, one in counts.items() if one.answered == one.asked]
    refused = [count for count, one in counts.items() if one.answered == 0]
    return {"stop_limit": max(taken)} if taken and refused and max(taken) < min(refused) else {}


def _thinking(base: Profile, facts: Mapping[str, Measured]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    fields = sorted({text for one in facts.values() if one.fact.startswith("thinking/") for text in one.texts})
    modes = [mode for mode in base.thinking.modes if f"thinking/{mode}/on" in facts or f"thinking/{mode}/off" in facts]
    on = [mode for mode in modes if _always(facts.get(f"thinking/{mode}/on"))]
    works = [mode for mode in on if _always(facts.get(f"thinking/{mode}/off"))]
    if base.thinking.supported and modes and not on and not fields:
        return {"supported": False, "default": False, "can_disable": False, "mode": NO_SWITCH}
    if base.thinking.supported and works and (base.thinking.mode not in works or not base.thinking.can_disable):
        changed |= {"mode": works[0] if base.thinking.mode not in works else base.thinking.mode, "can_disable": True}
    elif base.thinking.supported and modes and not works and base.thinking.can_disable:
        changed |= {"can_disable": False, **({"mode": on[0]} if on and base.thinking.mode not in on else {})}
    plain = facts.get("thinking/default")
    if base.thinking.supported and plain is not None and bool(plain.texts) != base.thinking.default:
        changed["default"] = bool(plain.texts)
    if fields and not set(fields) <= set(base.thinking.fields):
        changed["fields"] = fields
    efforts = [effort for effort in base.thinking.efforts if facts.get(f"efforts/{effort}") is not None]
    taken = [effort for effort in efforts if facts[f"efforts/{effort}"].answered == facts[f"efforts/{effort}"].asked]
    if efforts and taken and tuple(taken) != base.thinking.efforts:
        changed["efforts"] = taken
        if base.thinking.default_effort not in taken:
            changed["default_effort"] = taken[-1]
    return changed


def _tokens(facts: Mapping[str, Measured]) -> dict[str, int]:
    found = {}
    for name, (with_it, without) in OVERHEADS.items():
        more, less = _one_value(facts.get(with_it)), _one_value(facts.get(without))
        if more is not None and less is not None and more >= less:
            found[name] = more - less
    return found


def _wire(base: Profile, facts: Mapping[str, Measured]) -> dict[str, str]:
    """The form of ids, where all had one and the base knows of none."""
    found = {}
    for name in ("chat_id", "tool_id"):
        one = facts.get(f"ids/{name.replace('_', '-')}")
        if one is not None and len(one.texts) == 1 and getattr(base.wire, name) is None:
            found[name] = one.texts[0]
    return found


def _one_value(one: Measured | None) -> int | None:
    return one.values[0] if one is not None and len(one.values) == 1 else None
