"""`kvv merge`: the shards of one run become one run, with its own folder and reports."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from kvv.planning.config import ConfigError
from kvv.planning.shard import plan_digest
from kvv.reporting.finalize import write_reports
from kvv.storage.run_folder import STORE, create_folder, read_config, write_config
from kvv.storage.run_summary_reader import open_finished
from kvv.storage.seal import RECORD, doubtful, seal
from kvv.storage.store import Store, StoreError
from kvv.storage.store.merge import merge_into

#: what the shards of one run have in common
ALIKE = (
    "kvv_version",
    "model",
    "vendor",
    "base_url",
    "profile",
    "surface",
    "tier",
    "preset",
    "policy",
    "seed",
    "suites",
    "skipped",
)


def merge(arguments: argparse.Namespace) -> int:
    """The merged run's exit code. ConfigError for gaps, overlaps and shards of different runs; nothing is written
    then.
    """
    if len(arguments.runs) < 2:
        raise ConfigError("RUN: wants all shards of a run, at least two")
    with ExitStack() as stack:
        opened = [stack.enter_context(open_finished(name, arguments.out, whole=False)) for name in arguments.runs]
        folders = [folder for _, folder in opened]
        metas = [store.meta() for store, _ in opened]
        check_shards(metas, [folder.name for folder in folders])
        cases = [(case.id, samples) for store, _ in opened for case, samples in store.cases()]
    _check_cases(cases, metas[0]["shard"])
    order = sorted(range(len(metas)), key=lambda i: metas[i]["shard"]["index"])
    config = read_config(folders[order[0]])
    unproven = doubtful(folders[order[0]], config)
    if "as_reference" in unproven and not arguments.as_reference:
        raise ConfigError(
            f"RUN: {folders[order[0]]} was not started here: give again where the reference is written: --as-reference"
            " FILE"
        )
    config = config.model_copy(
        update={
            "shard": None,
            "out": arguments.out or "reports",
            "json_output": bool(arguments.json_output),
            "quiet": bool(arguments.quiet),
            "shared": bool(arguments.shared),
            "as_reference": arguments.as_reference or config.as_reference,
        }
    )
    folder = create_folder(config.out, metas[0]["vendor"], metas[0]["model"], shared=config.shared)
    meta = merged_meta([metas[i] for i in order], folder.name) | {
        RECORD: None if unproven else seal(config, folder.name)
    }
    try:
        Store.create(folder / STORE, meta).close()
        merge_into(folder / STORE, [folders[i] / STORE for i in order])
        write_config(folder, config)  # last: it makes the folder a run that can be found
    except StoreError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ConfigError(f"RUN: {error}") from error
    with Store.open(folder / STORE, read_only=True) as store:
        return write_reports(config, store, folder)


def check_shards(metas: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """ConfigError unless these are shards 1 to n of one run, each once."""
    for meta, name in zip(metas, names, strict=True):
        if not meta.get("shard"):
            raise ConfigError(f"RUN: {name} is no shard (kvv run --shard I/N makes one)")
    first = metas[0]
    for meta, name in zip(metas[1:], names[1:], strict=True):
        if (meta["shard"]["of"], meta["shard"]["plan"]) != (first["shard"]["of"], first["shard"]["plan"]):
            raise ConfigError(
                f"RUN: {name} and {names[0]} are shards of different plans: other suites, data, limits or numbers of"
                " shards"
            )
        unlike = next((key for key in ALIKE if meta.get(key) != first.get(key)), None)
        if unlike is not None:
            raise ConfigError(f"RUN: {name} and {names[0]} differ in {unlike}")
    indices = [meta["shard"]["index"] for meta in metas]
    of = first["shard"]["of"]
    double = next((i for i in indices if indices.count(i) > 1), None)
    if double is not None:
        raise ConfigError(f"RUN: shard {double}/{of} stands there twice")
    missing = sorted(set(range(1, of + 1)) - set(indices))
    if missing:
        some = ", ".join(f"{i}/{of}" for i in missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise ConfigError(f"RUN: a gap, shard {some} is missing")


def _check_cases(cases: Sequence[tuple[str, int]], shard: Mapping[str, Any]) -> None:
    ids = [case for case, _ in cases]
    if len(set(ids)) != len(ids):
        raise ConfigError("RUN: overlap, a case stands in two shards")
    if plan_digest(cases) != shard["plan"]:
        raise ConfigError(
            f"RUN: a gap, the shards hold {len(ids)} of the plan's {shard['cases']} cases or ask them otherwise"
        )


def merged_meta(metas: Sequence[Mapping[str, Any]], run_id: str) -> dict[str, Any]:
    """The first shard's meta with the span of all, any reason to stop, and the sum of what the reference endpoint
    counted.
    """
    stops = [meta.get("stop") for meta in metas if meta.get("stop") and meta["stop"].get("reason")]
    counts = [meta.get("server_counts") for meta in metas]
    return {
        **metas[0],
        "run_id": run_id,
        "started": min(meta["started"] for meta in metas),
        "finished": max(meta["finished"] for meta in metas),
        "stop": stops[0] if stops else metas[0].get("stop"),
        "blocked": any(meta.get("blocked") for meta in metas),
        "configuration": any(meta.get("configuration") for meta in metas),
        "server_counts": None if any(count is None for count in counts) else _sum(counts),
        "shard": None,
        "merged": [meta["run_id"] for meta in metas],
    }


def _sum(values: Sequence[Any]) -> Any:
    """Numbers added, tables field by field; whatever else the first has."""
    tables = [value for value in values if isinstance(value, Mapping)]
    if tables:
        keys = dict.fromkeys(key for table in tables for key in table)
        return {key: _sum([table[key] for table in tables if key in table]) for key in keys}
    numbers = [value for value in values if isinstance(value, int | float)]
    return sum(numbers) if numbers else next(iter(values), None)
