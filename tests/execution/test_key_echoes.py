"""Endpoints that echo the key in disguise, in every place that is kept; who may read what is kept; kill -9."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from stored import everything_in

from kvv.protocol.redaction.disguises import fold

KEY = "sk-kimi-4f9Kq2Zt7Wb1xYz0Pq8L"
ECHOES = [
    KEY,
    KEY.upper(),
    KEY[::-1],
    " ".join(KEY),
    KEY[:-3],
    KEY[3:],
    KEY.encode().hex(),
    base64.b32encode(KEY.encode()).decode(),
    base64.b64encode(KEY.encode()).decode(),
    base64.b64encode(base64.b64encode(KEY.encode())).decode(),
]
#: of each form a middle part, in folded data: no other text holds it
TELLING = [fold(echo.encode())[4:16] for echo in ECHOES]
posix = pytest.mark.skipif(os.name == "nt", reason="the rights of POSIX")


def echo(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
    said = ECHOES[number % len(ECHOES)]
    message = {"role": "assistant", "content": f"It is {said} .", "reasoning_content": said, "note": said}
    call = {"id": said, "type": "function", "function": {"name": said, "arguments": json.dumps({"key": said})}}
    choice = {"index": 0, "message": message | {"tool_calls": [call]}, "finish_reason": said}
    whole = {"id": said, "object": said, "model": said, "created": 1, "choices": [choice], "system_fingerprint": said}
    if number % 3 == 1 and number > 4:  # the first looks must be answered
        return {"status": 400, "body": json.dumps({"error": {"message": f"wrong key {said} !", "code": said}}).encode()}
    if number % 3 == 2:
        chunk = whole | {"choices": [{"index": 0, "delta": message, "finish_reason": said}]}
        frames = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        return {"body": frames, "headers": {"content-type": "text/event-stream", "x-request-id": said}}
    return {"body": json.dumps(whole).encode(), "headers": {"x-request-id": said, "server": said}}


def leaks(data: bytes) -> list[str]:
    folded = fold(data)
    return [said for said, telling in zip(ECHOES, TELLING, strict=True) if telling in folded]


def open_to_others(folder: Path) -> list[str]:
    return [str(path) for path in (folder, *folder.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_what_tells_a_form_is_in_the_form_itself() -> None:
    assert [leaks(f"x {said} y".encode()).count(said) for said in ECHOES] == [1] * len(ECHOES)
    assert leaks(b"nothing of the kind") == []


@posix
def test_no_form_of_the_key_reaches_any_output_and_the_folder_is_private(
    kvv_cli: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KVV_API_KEY", KEY)
    monkeypatch.setenv("KVV_JUDGE_API_KEY", KEY)
    with serve(echo) as server:
        options = ("--base-url", server.url, "--model", "kimi-k3", "--judge-base-url", server.url, "--judge-model", "j")
        ran = kvv_cli(
            *("run", "params", "streaming", "tools", "aime2025", "beam", "--data", "aime2025=fixture"),
            *("--data", "beam=fixture", "--limit", "2", "--samples", "1", *options, "--record", "full", "--force"),
            *("--yes", "--max-requests", "60"),
        )
        assert len(server.seen) > 30, ran.said
    folder = ran.folder
    data = everything_in(folder)
    assert b"[redacted]" in data
    assert leaks(data) == []
    assert leaks(ran.said.encode()) == []
    for name in ("text", "json", "junit", "md", "html", "github", "csv", "leaderboard", "kvv"):
        assert leaks(kvv_cli("report", str(folder), "--format", name).said.encode()) == [], name
    assert kvv_cli("report", str(folder), "--format", "parquet,html", "--to", str(tmp_path / "to")).code == 0
    shown = kvv_cli("show", ran.report["checks"][0]["id"], "--run", str(folder), "--export", str(tmp_path / "to"))
    assert leaks(shown.said.encode() + everything_in(tmp_path / "to")) == []
    assert open_to_others(folder) == []
    kvv_cli("score", str(folder), "-q")
    assert open_to_others(folder) == []


@posix
def test_shared_opens_the_folder(kvv_cli: Any) -> None:
    before = os.umask(0o022)
    try:
        folder = kvv_cli("check", "errors", "--case", "errors/key/*", "--shared", "-q").folder
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {0o755, 0o644}


@posix
def test_a_killed_run_leaves_no_key_and_nothing_that_others_can_read(
    kvv_cli: Any, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVV_API_KEY", KEY)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with serve(echo) as server:
        options = ["--base-url", server.url, "--model", "kimi-k3", "--out", "killed", "--data", "aime2025=fixture"]
        asked = ["run", "params", "streaming", "aime2025", "--samples", "200", "--force", "--yes", "--record", "full"]
        with (tmp_path / "said").open("wb") as said:
            run = subprocess.Popen([sys.executable, "-m", "kvv", *asked, *options], stdout=said, stderr=said)
        patience = time.monotonic() + 60
        while len(server.seen) < 40 and run.poll() is None and time.monotonic() < patience:
            time.sleep(0.02)
        run.kill()
        run.wait()
    assert len(server.seen) >= 40, (tmp_path / "said").read_text("utf-8")
    (folder,) = (tmp_path / "killed").iterdir()
    assert leaks((tmp_path / "said").read_bytes()) == []
    assert leaks(b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())) == []
    assert leaks(everything_in(folder)) == []
    assert [name for name in open_to_others(folder) if not name.endswith("-lock")] == []
    assert [path for path in (tmp_path / "temporary").rglob("*") if path.is_file() and leaks(path.read_bytes())] == []
