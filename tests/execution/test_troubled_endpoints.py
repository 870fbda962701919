"""Trouble in mid-run: recorded for what it is, retried only as the outcome table says, and never a changed verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvv.mockserver import MockConfig, MockServer
from kvv.storage.store import Store

CANARY = "sk-canary-7c1f0e5b9d/+x"
JUDGE_CANARY = "sk-judge-canary-11aa22bb33"


def completion(content: str = "The answer is \\boxed{1}.", **usage: int) -> dict[str, Any]:
    """A correct non-stream answer."""
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **usage}
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": counts,
    }
    return {"body": json.dumps(body).encode()}


def refusal(status: int, kind: str) -> dict[str, Any]:
    return {"status": status, "body": json.dumps({"error": {"message": "no", "type": kind}}).encode()}


AIME = (
    "run",
    "aime2025",
    "--data",
    "aime2025=fixture",
    "--samples",
    "4",
    "--no-stream",
    "--model",
    "any-model",
    "--concurrency",
    "3",
)


def outcomes(folder: Path) -> dict[str, str]:
    with Store.open(folder / "store.sqlite", read_only=True) as store:
        return {f"{case}#{sample}": f"{verdict.outcome}:{verdict.reason}" for case, sample, verdict in store.verdicts()}


@pytest.mark.parametrize(
    "quirk", ["rate-limit-1in5", "unavailable-1in7", "close-each", "close-100", "gzip", "crlf", "split"]
)
def test_a_correct_but_troubled_server_gets_the_verdicts_of_an_untroubled_one(
    quirk: str, kvv_cli: Any, tmp_path: Path
) -> None:
    found = []
    for faults in ((), (f"quirk:{quirk}",)):
        with MockServer(MockConfig(faults=faults)) as server:
            ran = kvv_cli(
                "run",
                "params",
                "--base-url",
                server.base_url,
                "--model",
                "kimi-k3",
                out=tmp_path / (faults[0][6:] if faults else "clean"),
            )
        assert ran.code == 0, ran.said
        found.append(outcomes(ran.folder))
        traffic = ran.report["traffic"]
    assert found[0] == found[1]
    if quirk in ("rate-limit-1in5", "unavailable-1in7"):
        assert traffic["attempts"] > traffic["requests"]
        assert traffic["first_try_success"] < 1


def test_an_account_that_runs_dry_pauses_the_run_and_resume_completes_it(kvv_cli: Any, serve: Any) -> None:
    paid = {"until": 20}
    with serve(lambda number, *_: completion() if number < paid["until"] else refusal(402, "billing")) as server:
        ran = kvv_cli(*AIME, "--base-url", server.url)
        assert ran.code == 3, ran.said
        row = ran.row("aime2025")
        assert "no-credit" in ran.report["trouble"]
        assert ran.report["verdict"] == "inconclusive"
        assert 0 < row["n_concluded"] < row["n_planned"]
        asked = len(server.seen)
        paid["until"] = 10**9
        resumed = kvv_cli("resume", str(ran.folder))
    assert resumed.report["trouble"] == ""
    assert resumed.row("aime2025")["n_concluded"] == row["n_planned"]
    assert len(server.seen) - asked <= row["n_planned"] - row["n_concluded"] + 1


@pytest.mark.parametrize("mended", [True, False], ids=["one-question-refused", "everything-refused"])
def test_a_400_fails_a_question_only_where_others_are_answered(mended: bool, kvv_cli: Any, serve: Any) -> None:
    """A gateway that has had enough says 400 to everything; a vendor that cannot do one question answers the rest."""

    def answer(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        refuses = b"Reply with exactly" not in body and b"7^{2025}" in body if mended else number >= 20
        return refusal(400, "invalid_request_error") if refuses else completion()

    with serve(answer) as server:
        ran = kvv_cli(*AIME, "--base-url", server.url)
    found = outcomes(ran.folder)
    wrong = [key for key, outcome in found.items() if outcome == "fail:valid-request-refused"]
    open_ones = [key for key, outcome in found.items() if outcome == "inconclusive:control-not-answered"]
    if mended:
        assert (len(wrong), len(open_ones)) == (4, 0)
    else:
        assert wrong == []
        assert 5 <= len(open_ones) < 10, "the run stops, and `kvv resume` asks the rest"
        assert "refuses even the plainest request" in ran.report["trouble"]
        assert ran.code == 3


def test_a_plain_request_that_was_answered_before_says_nothing_of_now(kvv_cli: Any, serve: Any) -> None:
    """One question is refused for good; soon after, the account gives out: nothing else counts against the vendor."""

    def answer(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        return refusal(400, "invalid_request_error") if number >= 30 or b"7^{2025}" in body else completion()

    with serve(answer) as server:
        ran = kvv_cli(*AIME, "--base-url", server.url)
    wrong = [key for key, outcome in outcomes(ran.folder).items() if outcome == "fail:valid-request-refused"]
    assert all("own-02" in key for key in wrong), wrong


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (refusal(500, "server_error"), "HTTP 500"),
        (refusal(503, "overloaded"), "HTTP 503"),
        ({"status": 502, "body": b"<html>x</html>", "content_type": "text/html"}, "HTTP 502"),
    ],
    ids=["500", "503", "html-502"],
)
def test_an_endpoint_that_dies_in_mid_run_stops_it_with_everything_else_open(
    end: dict[str, Any], words: str, kvv_cli: Any, serve: Any
) -> None:
    with serve(lambda number, *_: completion() if number < 12 else end) as server:
        ran = kvv_cli(*AIME, "--base-url", server.url)
    row = ran.row("aime2025")
    assert ran.code == 3
    assert words in ran.report["trouble"]
    assert 0 < row["n_concluded"] < row["n_planned"]
    assert row["n_concluded"] + row["n_inconclusive"] == row["n_planned"]
    assert any(finding["rule"] == "availability/endpoint-died" for finding in ran.report["findings"])
    assert {value.split(":")[0] for value in outcomes(ran.folder).values()} <= {"fail", "inconclusive"}


def test_one_bad_sample_among_good_ones_stays_inconclusive_and_the_run_goes_on(kvv_cli: Any, serve: Any) -> None:
    def answer(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        return refusal(500, "server_error") if b"EVIL" in body else completion()

    with serve(answer) as server:
        rows = [{"problem": f"What is {n}? {'EVIL' if n == 2 else ''}", "answer": "1", "id": str(n)} for n in range(5)]
        Path("rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        ran = kvv_cli(
            "run",
            "aime2025",
            "--data",
            "aime2025=rows.jsonl",
            "--no-stream",
            "--samples",
            "1",
            "--base-url",
            server.url,
            "--model",
            "m",
        )
    row = ran.row("aime2025")
    assert (row["n_planned"], row["n_concluded"], row["n_inconclusive"]) == (5, 4, 1)
    assert (row["value"], row["worst_case"], row["best_case"]) == (1.0, 0.8, 1.0)


def test_answers_that_a_gateway_cuts_at_the_same_age_are_named_as_that(
    kvv_cli: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvv.decision.gateway_timeouts.SHORTEST_MS", 100.0)

    def answer(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        return refusal(504, "timeout") | {"hang": 0.2} if b"LONG" in body else completion()

    with serve(answer) as server:
        rows = [{"problem": f"What is {n}? {'LONG' if n < 2 else ''}", "answer": "1", "id": str(n)} for n in range(5)]
        Path("rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        ran = kvv_cli(
            "run",
            "aime2025",
            "--data",
            "aime2025=rows.jsonl",
            "--no-stream",
            "--samples",
            "1",
            "--base-url",
            server.url,
            "--model",
            "m",
        )
    [finding] = [one for one in ran.report["findings"] if one["rule"] == "availability/gateway-timeout-suspected"]
    assert (finding["level"], finding["count"]) == ("should", finding["exchanges"])
    assert finding["count"] >= 4
    assert finding["examples"][0]["exchange"].startswith("aime2025/")


@pytest.mark.parametrize(
    "option",
    [
        ("--max-requests", "10"),
        ("--max-tokens-total", "100"),
        ("--max-cost", "0.000001", "--price-in", "1", "--price-out", "1"),
    ],
)
def test_a_budget_ends_the_run_in_a_reported_state(option: tuple[str, ...], kvv_cli: Any, serve: Any) -> None:
    with serve(lambda *_: completion()) as server:
        ran = kvv_cli(*AIME, "--base-url", server.url, *option)
    assert ran.code == 5, ran.said
    row = ran.row("aime2025")
    assert row["n_concluded"] < row["n_planned"]
    assert option[0] in ran.report["trouble"]
    assert ran.report["partial"] is True


def test_a_resumed_run_cannot_be_bound_by_a_price_that_nobody_knows(kvv_cli: Any, serve: Any) -> None:
    with serve(lambda *_: completion()) as server:
        asked = ("--base-url", server.url, "--model", "unpriced", "--profile", "openai", "--max-requests", "5")
        ran = kvv_cli(*AIME, *asked)
        assert ran.code == 5, ran.said
        refused = kvv_cli("resume", str(ran.folder), "--max-cost", "1")
        assert refused.code == 2
        assert "--max-cost: no price of unpriced is known" in refused.err


def test_a_gate_that_fails_keeps_the_benchmarks_from_starting_unless_forced(kvv_cli: Any, serve: Any) -> None:
    arguments = (
        "run",
        "params",
        "aime2025",
        "--data",
        "aime2025=fixture",
        "--no-stream",
        "--samples",
        "1",
        "--model",
        "kimi-k3",
        "--case",
        "*whole",
        "--case",
        "aime2025/*",
    )
    with serve(lambda number, headers, body: completion()) as server:  # accepts everything, so refuses nothing
        ran = kvv_cli(*arguments, "--base-url", server.url)
        problems = sum(b"boxed" in repr(seen).encode() for seen in server.seen)
        forced = kvv_cli(*arguments, "--base-url", server.url, "--force", out=Path("forced"))
    assert ran.code == 1
    assert problems == 0
    assert [row for row in ran.report["suites"] if row["id"] == "aime2025"] == []
    assert "the parameter gate failed" in ran.report["coverage"]
    assert forced.code == 1
    assert forced.row("aime2025")["n_concluded"] == forced.row("aime2025")["n_planned"]


def test_no_key_is_in_any_file_report_line_or_process_list_even_when_the_endpoint_echoes_it(
    kvv_cli: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVV_API_KEY", CANARY)
    monkeypatch.setenv("KVV_JUDGE_API_KEY", JUDGE_CANARY)
    monkeypatch.setenv("EXTRA", "header-canary-99zz")
    listed: list[str] = []

    def answer(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        key = headers["Authorization"]
        if number == 5:
            listed.extend(
                path.read_bytes().decode("utf-8", "replace")
                for path in Path("/proc").glob("[0-9]*/cmdline")
                if path.exists()
            )
        if number % 3 == 1:
            return {
                "status": 400,
                "body": json.dumps({"error": {"message": f"bad key {key}", "type": "invalid_request_error"}}).encode(),
            }
        return {**completion(f"your key is {key}, \\boxed{{1}} {headers['X-Extra']}"), "headers": {"X-Request-Id": key}}

    with serve(answer) as server:
        ran = kvv_cli(
            *AIME,
            "--base-url",
            server.url.replace("http://", "http://user:url-canary-55@"),
            "--header-env",
            "X-Extra=EXTRA",
            "-v",
        )
        shown = kvv_cli("show", "aime2025/1", "--run", str(ran.folder), "--export", "exported")
        kvv_cli(
            "report", str(ran.folder), "--format", "json,junit,md,html,github,csv,leaderboard,text", "--to", "views"
        )
    assert any(CANARY in json.dumps(seen) for seen in server.seen)
    said = ran.said + shown.said
    secrets = (CANARY, CANARY.replace("/", "\\/"), JUDGE_CANARY, "header-canary-99zz", "url-canary-55")
    for secret in secrets:
        assert secret not in said
        assert [
            str(path) for path in Path().rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
        ] == []
        assert not any(secret in line for line in listed)
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:  # blobs are compressed: look inside
        for stored in store.exchanges():
            assert not any(secret in repr(stored) for secret in secrets)


@pytest.mark.parametrize(
    ("trouble", "decision"),
    [({"hang": 30.0}, "fail"), ({"status": 503}, "fail"), ({}, "pass")],
)
def test_a_service_level_counts_the_requests_that_were_not_answered(
    trouble: dict[str, Any], decision: str, kvv_cli: Any, serve: Any
) -> None:
    level = '[[service_level]]\nid = "e2e"\nmeasure = "e2e_ms"\nlimit = 20000\nshare = 0.9\n'
    Path("sla.toml").write_text(f'name = "sla"\ntitle = "sla"\nalpha = 0.05\n{level}', "utf-8")
    with serve(lambda number, *_: {**completion(), **(trouble if number % 2 else {})}) as server:
        ran = kvv_cli(
            *AIME, "--policy", "sla.toml", "--base-url", server.url, "--concurrency", "8", "--first-byte-timeout", "1"
        )
    (gate,) = (gate for gate in ran.report["gates"] if gate["id"] == "service/e2e")
    assert gate["verdict"] == decision, gate
    asked = ran.row("aime2025")["n_planned"]
    if decision == "pass":  # the sign of life before the first question is no question
        assert f"{asked} of {asked} requests" in gate["reason"]
    else:
        assert "got no whole answer" in gate["reason"]
