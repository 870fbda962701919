"""`kvv run --effort low,high`: the same questions at several efforts, side by side, an ordinary run each."""

from __future__ import annotations

from kvv.cases.suite import SuiteKind
from kvv.execution.preparation import prepare
from kvv.planning.config import ConfigError, RunConfig, revise
from kvv.planning.vendors_file import Vendor
from kvv.storage.run_folder import vendor_of


def efforts_of(config: RunConfig) -> list[str]:
    return list(dict.fromkeys(config.effort))


def sides_of(config: RunConfig) -> list[Vendor]:
    """A side for each effort. What is no benchmark is asked once, in the first effort's run; a fixed number of requests
    at once is shared among the efforts, which have one endpoint. ConfigError naming what does not go together.
    """
    efforts = efforts_of(config)
    if config.base_url is None:
        raise ConfigError("--effort: several want an endpoint (--base-url)")
    for name, value in (
        ("--shard", config.shard),
        ("--as-reference", config.as_reference),
        ("--early-stop", config.early_stop),
        ("--reference-base-url", config.reference_base_url),
    ):
        if value:
            raise ConfigError(f"{name}: not with several efforts")
    if config.concurrency is not None and config.concurrency < len(efforts):
        raise ConfigError(f"--concurrency: {len(efforts)} efforts side by side want at least {len(efforts)}")
    shared = {} if config.concurrency is None else {"concurrency": config.concurrency // len(efforts)}
    planned = prepare(revise(config, {"effort": (efforts[0],)})).plan
    benchmarks = tuple(item.suite.id for item in planned.suites if item.suite.kind is SuiteKind.BENCHMARK)
    if not benchmarks:
        skipped = "; ".join(f"{item.suite}: {item.reason}" for item in planned.skipped)
        raise ConfigError(
            f"--effort: several are for benchmarks, and none is planned{f' ({skipped})' if skipped else ''}"
        )
    return [
        Vendor(
            name=f"{vendor_of(config.base_url)}-{effort}",
            config=revise(config, {"effort": (effort,), **shared, **({} if first else {"suites": benchmarks})}),
        )
        for effort, first in zip(efforts, [True, *[False] * len(efforts)], strict=False)
    ]
