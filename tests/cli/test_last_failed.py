"""`kvv run --last-failed` asks what failed and nothing else; `kvv list runs` and `kvv show` say what there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from viewed import CLEAN, FAULTY, UNFINISHED, lay_out

from kvv.core import Credential
from kvv.mockserver import MockConfig, MockServer
from kvv.storage.curl import curl_line
from kvv.storage.store import Store

CHOICE = ("--case", "params/rejected/*", "--case", "params/omitted/*")


def test_only_what_failed_is_asked_with_the_runs_own_settings(kvv_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_MINE", "sk-1")
    with MockServer(MockConfig(faults=("A05",), api_key="sk-1")) as server:
        first = kvv_cli(
            "check",
            "params",
            *CHOICE,
            "--base-url",
            server.base_url,
            "--model",
            "kimi-k3",
            "--api-key-env",
            "KEY_OF_MINE",
        )
        assert first.code == 1
        report = json.loads((first.folder / "report.json").read_text())
        failed = [check["id"] for check in report["checks"] if check["verdict"] == "fail"]
        assert 0 < len(failed) < len(report["checks"])
        again = kvv_cli("check", "--last-failed", str(first.folder))
        assert again.code == 1
        asked = json.loads((again.folder / "report.json").read_text())
        assert [check["id"] for check in asked["checks"]] == failed
        assert f"kvv run --last-failed {again.folder}" in again.out
        # the key's variable, not its value and not the usual name
        curl = asked["causes"][0]["example"]["curl"]
        assert '-H "Authorization: Bearer $KEY_OF_MINE"' in curl
        assert "sk-1" not in json.dumps(asked)


def test_where_nothing_failed_there_is_nothing_to_ask_again(kvv_cli: Any) -> None:
    with MockServer() as server:
        clean = kvv_cli("check", "params", *CHOICE[2:], "--base-url", server.base_url, "--model", "kimi-k3")
    assert clean.code == 0
    done = kvv_cli("check", "--last-failed", str(clean.folder))
    told = f"kvv check: --last-failed: nothing failed in {clean.folder}; run without it to ask everything\n"
    assert (done.code, done.err) == (2, told)


def test_runs_are_listed_with_their_first_cause(kvv_cli: Any, tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "runs")
    found = json.loads(kvv_cli("list", "runs", "--json", "--out", str(folder)).out)
    assert [(run["id"], run["verdict"]) for run in found] == [
        (UNFINISHED, "running"),
        (FAULTY, "fail"),
        (CLEAN, found[2]["verdict"]),
    ]
    assert found[1]["cause"] == "invalid requests are accepted"


@pytest.mark.parametrize(
    ("meta", "headers"),
    [
        ({}, '-H "Authorization: Bearer $KVV_API_KEY" '),
        ({"api_key_env": ""}, ""),  # none was sent
        (
            {"api_key_env": "MY_KEY", "header_env": {"X-Team": "TEAM"}},
            '-H "Authorization: Bearer $MY_KEY" -H "X-Team: $TEAM" ',
        ),
        ({"api_key_env": "A;rm -rf ~", "header_env": {"X$(id)": "T", "X-A": "$(id)"}}, ""),  # a stranger's run
    ],
)
def test_a_curl_line_names_the_variable_of_every_header(tmp_path: Path, meta: dict[str, Any], headers: str) -> None:
    folder = lay_out(tmp_path / "runs")
    with Store.open(folder / CLEAN / "store.sqlite", read_only=True) as store:
        stored = next(
            one for one in store.exchanges() if one.request.credential is Credential.OWN and one.request.stream
        )
        line = curl_line({"base_url": "https://api.example.org/v1", **meta}, stored)
    assert line.startswith(
        f'curl -N https://api.example.org/v1/chat/completions {headers}-H "Content-Type: application/json" --data'
    )
