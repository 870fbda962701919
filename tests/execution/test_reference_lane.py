"""The official endpoint asked beside the one under test: same questions, same time, its own key; what it concludes is
the reference.
"""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest

from kvv.execution.answer_key import answer_entries, keyed_suites
from kvv.execution.scheduling.pacing import SLACK
from kvv.mockserver import MockConfig, MockServer
from kvv.storage.store import Store

KEY = answer_entries(keyed_suites({}))
VENDOR_KEY, OFFICIAL_KEY = "sk-vendor-canary-7f3a9c", "sk-official-canary-b81d20"
AIME = (
    "run",
    "aime2025",
    "--data",
    "aime2025=fixture",
    "--samples",
    "8",
    "--model",
    "kimi-k3",
    "--no-stream",
    "--concurrency",
    "4",
)


def endpoint(stack: ExitStack, **how: Any) -> MockServer:
    return stack.enter_context(MockServer(MockConfig(answers=KEY, **how)))


@contextmanager
def relay(serve: Any, url: str, dead_after: int | None = None) -> Iterator[Any]:
    """Passes requests on, and answers 503 to all after the first ``dead_after``."""

    def answer(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        if dead_after is not None and number >= dead_after:
            return {"status": 503, "body": b""}
        kept = {name: value for name, value in headers.items() if name.lower() in ("content-type", "authorization")}
        request = urllib.request.Request(f"{url}/chat/completions", data=body, headers=kept)  # noqa: S310 our own server
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                return {"status": response.status, "body": response.read()}
        except urllib.error.HTTPError as error:
            return {"status": error.code, "body": error.read()}

    with serve(answer) as state:
        yield state


def gate(ran: Any, suite: str = "aime2025") -> Any:
    return next(gate for gate in ran.report["gates"] if gate["id"].startswith(f"{suite}/"))


def spans(store_path: Path) -> list[tuple[float, float, str]]:
    """Begin, end (seconds) and case of every benchmark request, by the stored UTC times."""
    with Store.open(store_path, read_only=True) as store:
        found = []
        for case, samples in store.cases("aime2025"):
            for sample in range(samples):
                for stored in store.exchanges(case.id, sample):
                    begin = datetime.fromisoformat(stored.exchange.started).timestamp()
                    found.append((begin, begin + stored.exchange.timing.total_ms / 1000, f"{case.id}#{sample}"))
    return sorted(found)


def lead(ahead: Sequence[tuple[float, float, str]], behind: Sequence[tuple[float, float, str]]) -> int:
    """By how many works the first lane was at most ahead of what the second had concluded when it began one."""
    ends = sorted(end for _, end, _ in behind)
    return max(number - sum(end <= begin + 0.02 for end in ends) for number, (begin, _, _) in enumerate(ahead))


@pytest.mark.parametrize(("accuracy", "verdicts", "code"), [(0.9, ("pass", "inconclusive"), None), (0.3, ("fail",), 1)])
def test_the_gate_is_decided_by_the_official_endpoint_asked_at_the_same_time(
    accuracy: float, verdicts: Sequence[str], code: int | None, kvv_cli: Any
) -> None:
    with ExitStack() as stack:
        vendor, official = (
            endpoint(stack, accuracy=accuracy, seed=3, ttft_ms=0),
            endpoint(stack, accuracy=0.9, seed=5, ttft_ms=100),
        )
        ran = kvv_cli(*AIME, "--base-url", vendor.base_url, "--reference-base-url", official.base_url)
    assert gate(ran)["verdict"] in verdicts
    assert ran.code == code or code is None
    assert (ran.row("aime2025")["reference"]["kind"], ran.row("aime2025")["reference"]["n"]) == ("interleaved", 96)
    mine, theirs = spans(ran.folder / "store.sqlite"), spans(ran.folder / "reference" / "store.sqlite")
    assert {case for _, _, case in mine} == {case for _, _, case in theirs}
    assert (len(mine), len(theirs)) == (96, 96)
    # the fast lane waits for the slow one, which waits for nobody
    assert 1 < lead(mine, theirs) <= SLACK + 4 + 1
    # the same seeded order: the first requests of both are of the same cases, and not of the first in the file
    assert {case for _, _, case in mine[:4]} & {case for _, _, case in theirs[:6]}
    assert json.loads((ran.folder / "reference" / "report.json").read_text())["surface"] == "official"


def test_no_key_goes_to_the_other_endpoint_nor_into_any_file(
    kvv_cli: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVV_API_KEY", VENDOR_KEY)
    monkeypatch.setenv("OFFICIAL_KEY", OFFICIAL_KEY)
    monkeypatch.setenv("TENANT", "tenant-canary-55aa")
    with ExitStack() as stack:
        vendor, official = endpoint(stack, api_key=VENDOR_KEY), endpoint(stack, api_key=OFFICIAL_KEY)
        first, second = (
            stack.enter_context(relay(serve, vendor.base_url)),
            stack.enter_context(relay(serve, official.base_url)),
        )
        bodies: list[bytes] = []
        ran = kvv_cli(
            *AIME,
            "--limit",
            "4",
            "--base-url",
            first.url,
            "--header-env",
            "X-Tenant=TENANT",
            "--provider",
            "pinned",
            "--extra-body",
            '{"user": "extra-canary"}',
            "--reference-base-url",
            second.url,
            "--reference-api-key-env",
            "OFFICIAL_KEY",
        )
    assert (ran.row("aime2025")["n_concluded"], ran.row("aime2025")["reference"]["n"]) == (32, 32), ran.said
    for seen, own, other in ((first.seen, VENDOR_KEY, OFFICIAL_KEY), (second.seen, OFFICIAL_KEY, VENDOR_KEY)):
        assert len(seen) >= 33
        assert all(own in headers.get("authorization", headers.get("Authorization", "")) for headers in seen)
        assert other not in json.dumps(seen)
    assert "tenant-canary" in json.dumps(first.seen)
    assert "tenant-canary" not in json.dumps(second.seen)
    with Store.open(ran.folder / "reference" / "store.sqlite", read_only=True) as store:
        bodies = [stored.body for stored in store.exchanges()]
    assert bodies
    assert not any(word in body for body in bodies for word in (b"extra-canary", b"pinned"))
    written = b"".join(path.read_bytes() for path in ran.folder.rglob("*") if path.is_file())
    assert not any(
        secret.encode() in written or secret in ran.said for secret in (VENDOR_KEY, OFFICIAL_KEY, "tenant-canary-55aa")
    )


def test_a_reference_that_dies_fails_nobody_and_resume_goes_on_with_both_lanes(kvv_cli: Any, serve: Any) -> None:
    with ExitStack() as stack:
        vendor, official = endpoint(stack, accuracy=0.2, seed=3), endpoint(stack, accuracy=0.9, seed=5)
        with relay(serve, official.base_url, dead_after=41) as dying:
            ran = kvv_cli(*AIME, "--base-url", vendor.base_url, "--reference-base-url", dying.url)
        assert (ran.code, gate(ran)["verdict"]) == (3, "inconclusive")
        assert gate(ran)["reason"].startswith(
            "reference-stopped: the reference endpoint concluded 40 of 96 samples (the endpoint now answers HTTP 503"
        )
        assert ran.row("aime2025")["n_concluded"] == 96  # a dead lane holds nobody back
        assert "the reference endpoint stopped (endpoint-died: the endpoint now answers HTTP 503" in ran.err
        assert f"kvv resume {ran.folder}" in ran.err
        asked = vendor.stats()["requests"]
        again = kvv_cli("resume", str(ran.folder), "--reference-base-url", official.base_url)
        assert gate(again)["reason"].startswith("worse-than-reference")
        assert (again.code, again.row("aime2025")["reference"]["n"]) == (1, 96)
        assert vendor.stats()["requests"] == asked + 1  # nothing but the sign of life
    scored = kvv_cli("score", str(ran.folder))
    assert "96 samples of the reference endpoint judged again, 0 verdicts changed" in scored.err
    assert scored.code == 1


def test_the_endpoint_under_test_dying_ends_the_reference_too(kvv_cli: Any, serve: Any) -> None:
    with ExitStack() as stack:
        vendor, official = endpoint(stack, accuracy=0.9, seed=3), endpoint(stack, accuracy=0.9, seed=5)
        with relay(serve, vendor.base_url, dead_after=21) as dying:
            ran = kvv_cli(*AIME, "--base-url", dying.url, "--reference-base-url", official.base_url)
        assert ran.code == 3
        assert official.stats()["requests"] < 60
    beside = json.loads((ran.folder / "reference" / "report.json").read_text())
    assert beside["trouble"].startswith("the endpoint under test stopped first")


def test_a_reference_that_is_not_there_at_the_start_costs_nothing_at_the_endpoint(kvv_cli: Any, serve: Any) -> None:
    with ExitStack() as stack:
        vendor = endpoint(stack)
        dead = kvv_cli(*AIME, "--base-url", vendor.base_url, "--reference-base-url", "http://127.0.0.1:9/v1")
        assert dead.code == 3
        assert "the reference endpoint does not answer" in dead.out
        wrong = kvv_cli(
            *AIME, "--base-url", vendor.base_url, "--reference-base-url", endpoint(stack, api_key="k").base_url
        )
        assert wrong.code == 2
        assert "KVV_REFERENCE_API_KEY is not set" in wrong.out
        assert vendor.stats()["requests"] == 2


def test_where_the_parameter_gate_fails_the_reference_is_asked_no_benchmark(kvv_cli: Any) -> None:
    with ExitStack() as stack:
        vendor, official = endpoint(stack, faults=("A05",)), endpoint(stack)
        ran = kvv_cli(
            "run", "params", *AIME[1:], "--base-url", vendor.base_url, "--reference-base-url", official.base_url
        )
        assert ran.code == 1
        assert official.stats()["requests"] == 1


def test_one_budget_counts_both_lanes(kvv_cli: Any) -> None:
    with ExitStack() as stack:
        vendor, official = endpoint(stack, seed=3), endpoint(stack, seed=5)
        ran = kvv_cli(
            *AIME, "--base-url", vendor.base_url, "--reference-base-url", official.base_url, "--max-requests", "60"
        )
        assert ran.code == 5
        both = vendor.stats()["requests"] + official.stats()["requests"]
        assert 60 <= both <= 60 + 2 * 4
        more = kvv_cli("resume", str(ran.folder), "--max-requests", "300")
        assert more.code in (0, 3)
        assert (more.row("aime2025")["n_concluded"], more.row("aime2025")["reference"]["n"]) == (96, 96)
        assert vendor.stats()["requests"] + official.stats()["requests"] == 2 * 96 + 4


def test_one_official_run_says_nothing_of_the_scatter_of_an_f1(kvv_cli: Any, tmp_path: Path) -> None:
    with ExitStack() as stack:
        vendor, official = endpoint(stack, seed=3), endpoint(stack, seed=5)
        with as_file(files("kvv.fixtures").joinpath("toolcall")) as folder:
            data = next(path for path in sorted(folder.iterdir()) if path.suffix == ".jsonl")
            arguments = ("run", "toolcall", "--data", f"toolcall={data}", "--model", "kimi-k3", "--limit", "20")
            ran = kvv_cli(*arguments, "--base-url", vendor.base_url, "--reference-base-url", official.base_url)
    found = next(gate for gate in ran.report["gates"] if gate["id"] == "toolcall/trigger_f1")
    assert (found["verdict"], found["reason"].partition(":")[0]) == ("inconclusive", "one-official-run")


def test_the_plan_counts_both_lanes(kvv_cli: Any) -> None:
    arguments = (
        "plan",
        *AIME[1:],
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--reference-base-url",
        "http://127.0.0.1:10/v1",
    )
    prices = ("--price-in", "1", "--price-out", "2", "--reference-price-in", "3", "--reference-price-out", "4")
    found = json.loads(kvv_cli(*arguments, *prices, "--json").out)
    assert (found["requests"], found["reference"]["requests"], found["total"]["requests"]) == (96, 96, 192)
    assert found["total"]["cost_usd"] == pytest.approx(found["cost_usd"] + found["reference"]["cost_usd"])
    assert found["reference"]["cost_usd"] == pytest.approx(2 * found["cost_usd"], rel=0.1)
    assert "all 2 together: 192 requests" in kvv_cli(*arguments, *prices).out
    # together they are above the guard, alone neither is
    refused = kvv_cli(*("run", *arguments[1:]), *prices, "--samples", "16")
    assert (refused.code, "may cost about $29" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--reference-base-url", "http://x/v1"),
            "--reference-base-url: wants an endpoint to compare it with, name --base-url",
        ),
        (
            ("--base-url", "http://127.0.0.1:9/v1", "--reference-base-url", "http://x/v1", "--shard", "1/2"),
            "--reference-base-url: not beside --shard",
        ),
        (
            ("--base-url", "http://127.0.0.1:9/v1", "--reference-base-url", "ftp://x"),
            "--reference-base-url: wants http(s)://HOST",
        ),
        (
            (
                "--base-url",
                "http://127.0.0.1:9/v1",
                "--reference-base-url",
                "http://x/v1",
                "--reference-model",
                "glm-4.6",
            ),
            "--reference-model: 'glm-4.6' is another model",
        ),
        (
            (
                "--base-url",
                "http://127.0.0.1:9/v1",
                "--reference-base-url",
                "http://127.0.0.1:9/v1",
                "--reference-api-key-env",
                "sk-abc",
            ),
            "--reference-api-key-env: wants the NAME of an environment variable",
        ),
    ],
)
def test_what_cannot_be_a_reference_is_one_line(arguments: Sequence[str], words: str, kvv_cli: Any) -> None:
    ran = kvv_cli(*AIME, *arguments)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert words in ran.err
    assert not list(ran.root.glob("*")) if ran.root.exists() else True


def test_the_reference_lane_alone_is_not_resumed(kvv_cli: Any) -> None:
    with ExitStack() as stack:
        vendor, official = endpoint(stack, seed=3), endpoint(stack, seed=5)
        ran = kvv_cli(*AIME, "--limit", "2", "--base-url", vendor.base_url, "--reference-base-url", official.base_url)
    again = kvv_cli("resume", str(ran.folder / "reference"))
    assert (again.code, len(again.err.splitlines())) == (2, 1)
    assert f"is the reference lane of {ran.folder}; resume that run" in again.err
    assert "kimi-k3" in kvv_cli("report", str(ran.folder / "reference")).out
    shutil.rmtree(ran.folder / "reference")
    lost = kvv_cli("resume", str(ran.folder))
    assert (lost.code, len(lost.err.splitlines())) == (2, 1)
    assert "has no reference lane to go on with" in lost.err
