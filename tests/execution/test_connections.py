"""Requests at once are refused before anything is sent where the system has too few open files for them."""

from __future__ import annotations

from typing import Any

import pytest

import kvv.execution.executor


@pytest.mark.parametrize(("allowed", "code"), [(4_096 + 256, 3), (4_096 + 255, 2)])
def test_more_connections_than_files_are_refused_by_the_option(
    kvv_cli: Any, monkeypatch: pytest.MonkeyPatch, allowed: int, code: int
) -> None:
    monkeypatch.setattr(kvv.execution.executor, "allow_open_files", lambda needed: allowed)
    endpoint = ("--base-url", "http://127.0.0.1:9/v1", "--model", "kimi-k3")
    ran = kvv_cli("run", "params", "--case", "params/omitted/*", *endpoint, "--concurrency", "4096")
    assert ran.code == code, ran.said
    assert ("--concurrency" in ran.said) == (code == 2)
    if code == 2:
        assert "4,352 open files, and this system allows 4,351" in ran.said
