"""What the README shows: `kvv serve --fault ...` is caught by `kvv check`, at the default tier and with default
options.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvv.mockserver import MockConfig, MockServer


@pytest.mark.parametrize(
    ("fault", "suite", "area", "rule"),
    [
        ("B19", "tools", "tools", "tools/index-reused"),
        ("C24", "streaming", "streaming", "stream/no-chunks"),
    ],
)
def test_a_fault_fails_the_check_in_its_area(fault: str, suite: str, area: str, rule: str, kvv_cli: Any) -> None:
    with MockServer(MockConfig(faults=(fault,))) as server:
        ran = kvv_cli("check", suite, "--base-url", server.base_url, "--model", "kimi-k3")
    assert ran.code == 1, ran.said
    assert ran.report["areas"][area] == "fail"
    assert [name for name, verdict in ran.report["areas"].items() if verdict == "fail"] == [area]
    assert rule in {finding["rule"] for finding in ran.report["findings"] if finding["level"] == "must"}


def test_the_same_server_without_a_fault_passes(kvv_cli: Any) -> None:
    with MockServer(MockConfig()) as server:
        ran = kvv_cli("check", "tools", "streaming", "--base-url", server.base_url, "--model", "kimi-k3")
    assert "fail" not in ran.report["areas"].values(), ran.said
    assert {finding["level"] for finding in ran.report["findings"]} <= {"may"}
