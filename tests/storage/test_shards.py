"""Splitting by cluster, and joining the stores of shards."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.core import Area, Case, Level
from kvv.planning.shard import Shard, parse_shard, plan_digest, split, unit_of
from kvv.storage.store import Store, StoreError
from kvv.storage.store.merge import merge_into


def case(case_id: str, cluster: str = "", block: str | None = None) -> Case:
    inputs = {} if block is None else {"block": block}
    return Case(
        id=case_id,
        suite="s",
        area=Area.TOOLS,
        level=Level.MUST,
        requirement="r",
        source="s",
        since="1",
        inputs=inputs,
        cluster=cluster,
    )


cases = st.lists(st.tuples(st.text(max_size=6), st.integers(0, 5)), max_size=60, unique_by=lambda item: item[0]).map(
    lambda items: [case(f"s/{name}", cluster=f"c{number}" if number else "") for name, number in items]
)


@given(cases, st.integers(1, 7))
def test_shards_are_a_partition_that_keeps_clusters_whole(found: list[Case], of: int) -> None:
    parts = [split(found, Shard(index=i, of=of)) for i in range(1, of + 1)]
    assert sorted(c.id for part in parts for c in part) == sorted(c.id for c in found)
    units = [{unit_of(c) for c in part} for part in parts]
    assert sum(map(len, units)) == len({unit_of(c) for c in found})
    assert max(map(len, units)) - min(map(len, units)) <= 1


def test_the_order_of_cases_does_not_matter() -> None:
    found = [case(f"s/{i}") for i in range(40)]
    mixed = list(found)
    random.Random(1).shuffle(mixed)
    assert {c.id for c in split(found, Shard(index=2, of=3))} == {c.id for c in split(mixed, Shard(index=2, of=3))}


def test_a_block_that_shares_its_prompt_is_never_torn() -> None:
    found = [case(f"s/{i}", cluster=f"c{i}", block=f"b{i % 3}") for i in range(30)]
    assert {len(split(found, Shard(index=i, of=3))) for i in (1, 2, 3)} == {10}


@pytest.mark.parametrize(("text", "shard"), [("1/1", (1, 1)), (" 2/4 ", (2, 4)), ("10000/10000", (10000, 10000))])
def test_shards_are_counted_from_one(text: str, shard: tuple[int, int]) -> None:
    found = parse_shard(text)
    assert (found.index, found.of) == shard


@pytest.mark.parametrize("text", ["", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "a/b", "1/10001", "1 / 4", "١/٢"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wants"):
        parse_shard(text)


def test_the_plans_digest_sees_every_case_and_its_samples() -> None:
    assert plan_digest([("a", 1), ("b", 2)]) == plan_digest([("b", 2), ("a", 1)])
    assert len({plan_digest(p) for p in ([("a", 1)], [("a", 2)], [("a", 1), ("b", 1)], [("ab", 1)], [])}) == 5


# --- stores ------------------------------------------------------------------------------------------


def whole(path: Path, make: Any, names: list[str]) -> Path:
    """A store with large shared bodies, an alias, findings and several attempts."""
    from kvv.core import Finding, FindingKind, Outcome, Request, Verdict
    from kvv.protocol.encode import encode

    with Store.create(path, {"run_id": path.stem}) as store:
        for name in names:
            store.put_cases([make.case(name)], {name: 1})
            body = {"messages": [{"role": "user", "content": "x" * 40_000}, {"role": "user", "content": name}]}
            finding = Finding(
                rule="r/x", area=Area.TOOLS, level=Level.MUST, kind=FindingKind.BREAKS_CLIENTS, message=name
            )
            for attempt in (1, 2):
                received = make.received(
                    make.identity(name), answer=f"{name} {attempt}", attempt=attempt, findings=(finding,)
                )
                store.put_exchange(received, Request(body=body), encode(body))
            store.put_alias(make.identity(name, step=1), make.identity(name))
            store.put_verdict(Verdict(case=name, sample=0, outcome=Outcome.FAIL, reason="old"))
            store.put_verdict(Verdict(case=name, sample=0, outcome=Outcome.PASS))
            store.put_event("note", {"case": name})
    return path


def read(path: Path, names: list[str]) -> Any:
    with Store.open(path, read_only=True) as store:
        exchanges = [
            (e.exchange.identity.key, e.exchange.attempt, e.body, e.observation.answer, [f.message for f in e.findings])
            for e in store.exchanges()
        ]
        histories = {name: [[a.observation.answer for a in step] for step in store.history(name, 0)] for name in names}
        return {
            "cases": [(c.id, n) for c, n in store.cases()],
            "exchanges": exchanges,
            "histories": histories,
            "verdicts": list(store.verdicts()),
            "replaced": [store.verdict_history(name, 0) for name in names],
            "findings": [(g.rule, g.count, g.exchanges) for g in store.finding_groups()],
            "traffic": store.traffic(),
            "events": [(e.kind, e.data) for e in store.events()],
        }


def test_joined_parts_read_like_the_whole(tmp_path: Path, make: Any) -> None:
    names = ["suite/a", "suite/b", "suite/c"]
    one = whole(tmp_path / "one.sqlite", make, names)
    parts = [whole(tmp_path / "p1.sqlite", make, names[:1]), whole(tmp_path / "p2.sqlite", make, names[1:])]
    target = tmp_path / "joined.sqlite"
    Store.create(target, {"run_id": "joined"}).close()
    merge_into(target, parts)
    assert read(target, names) == read(one, names)
    with Store.open(target, read_only=True) as store:
        assert store.meta() == {"run_id": "joined"}
    assert not list(tmp_path.glob("*-lock"))


def test_a_case_in_two_parts_is_refused_and_a_damaged_part_is_named(tmp_path: Path, make: Any) -> None:
    parts = [whole(tmp_path / "p1.sqlite", make, ["suite/a"]), whole(tmp_path / "p2.sqlite", make, ["suite/a"])]
    target = tmp_path / "joined.sqlite"
    Store.create(target, {}).close()
    with pytest.raises(StoreError, match=r"p2\.sqlite: holds a case that another part holds too"):
        merge_into(target, parts)
    (tmp_path / "bad.sqlite").write_bytes(b"x" * 4096)
    with pytest.raises(StoreError, match=r"bad\.sqlite: not a kvv store"):
        merge_into(target, [tmp_path / "bad.sqlite"])
    with pytest.raises(StoreError, match="no such file"):
        merge_into(target, [tmp_path / "none.sqlite"])
