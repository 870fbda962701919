"""`kvv nightly`, `kvv baseline init` and `kvv prune`, against servers that get worse."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvv.cases.suite import load_suite
from kvv.data import load
from kvv.execution.answer_key import answer_entries
from kvv.mockserver import MockConfig, MockServer

Kvv = Callable[..., Any]

POLICY = """
name = "night"
alpha = 0.005
[[benchmark]]
suite = "ocrbench"
key = "correct"
mode = "regression"
detect = 0.9
"""
ASKED = ("ocrbench", "--data", "ocrbench=fixture", "--policy", "night.toml", "--model", "kimi-k3", "-q")


@contextmanager
def fleet(accuracy: float) -> Iterator[None]:
    """Two endpoints by name, of which the second is as good as ``accuracy``; ports change from night to night."""
    key = answer_entries(load_suite("ocrbench").answer_key(load("ocrbench", fixture=True)))
    with (
        MockServer(MockConfig(answers=key)) as good,
        MockServer(MockConfig(answers=key, accuracy=accuracy, seed=3)) as other,
    ):
        tables = [f'[[vendor]]\nname = "{name}"\nbase_url = "{url}"\n' for name, url in
                  (("alpha", good.base_url), ("beta", other.base_url))]  # fmt: skip
        Path("fleet.toml").write_text("".join(tables), "utf-8")
        Path("night.toml").write_text(POLICY, "utf-8")
        yield


def test_a_fleet_has_one_line_one_page_and_the_gravest_exit_code(kvv_cli: Kvv) -> None:
    with fleet(1.0):
        first = kvv_cli("nightly", "fleet.toml", *ASKED)
        assert (first.code, first.out.count("\n")) == (3, 1)
        assert "2 INCONCLUSIVE (alpha, beta)" in first.out
        assert "no baseline yet" in Path("reports/nightly.md").read_text("utf-8")
        for report in Path("reports").glob("*/report.json"):
            assert kvv_cli("baseline", "accept", str(report.parent), "--build", "1.0", "--expires", "30d").code == 0
        quiet = kvv_cli("nightly", "fleet.toml", *ASKED, "--notify", notifier())
        assert (quiet.code, "2 PASS" in quiet.out) == (0, True), quiet
        assert not Path("said.txt").exists()
    with fleet(0.2):
        bad = kvv_cli("nightly", "fleet.toml", *ASKED, "--notify", notifier(), "--metrics", "night.prom")
        assert (bad.code, "1 FAIL (beta), 1 PASS" in bad.out) == (1, True), bad
        again = kvv_cli("nightly", "fleet.toml", *ASKED, "--notify", notifier())
        assert again.code == 1
    told = Path("said.txt").read_text("utf-8").splitlines()
    assert [("ocrbench/accuracy" in line, "beta" in line) for line in told] == [(True, True)]
    metrics = Path("night.prom").read_text("utf-8").splitlines()
    assert 'kvv_night_exit_code{vendor="alpha",model="kimi-k3"} 0' in metrics
    assert 'kvv_night_exit_code{vendor="beta",model="kimi-k3"} 1' in metrics
    assert 'kvv_gate{vendor="beta",model="kimi-k3",gate="ocrbench/accuracy"} 1' in metrics
    page = Path("reports/nightly.html").read_text("utf-8")
    assert "confirmed: ocrbench/accuracy" in page
    assert "false alarms over all 2 endpoints" in page


def notifier() -> str:
    return f"{sys.executable} -c \"import sys; open('said.txt', 'a').write(sys.stdin.read())\""


def test_a_night_that_cannot_start_leaves_no_page_of_yesterday(kvv_cli: Kvv) -> None:
    Path("reports").mkdir()
    Path("reports/nightly.html").write_text("yesterday: PASS", "utf-8")
    dead = kvv_cli("nightly", *ASKED[:3], "--base-url", "http://127.0.0.1:9/v1", "--model", "kimi-k3", "-q")
    assert dead.code != 0
    assert "PASS" not in dead.out
    assert "yesterday" not in "".join(path.read_text("utf-8") for path in Path("reports").glob("nightly.*"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nightly",), "--base-url: say which endpoint"),
        (("nightly", "a.toml", "b.toml"), "FLEET: one file of endpoints"),
        (("nightly", "none.toml"), "none.toml: cannot be read"),
        (("baseline", "init"), "--base-url: say which endpoint"),
        (("baseline", "init", "--base-url", "http://127.0.0.1:9/v1", "--count", "0"), "--count: wants 1 or more"),
        (("baseline", "init", "--base-url", "http://127.0.0.1:9/v1", "--expires", "soon"), "--expires: wants days"),
        (("prune", "--keep", "soon"), "--keep: wants days"),
        (("prune", "nowhere", "--keep", "1d"), "DIR: nowhere is no folder"),
    ],
)
def test_wrong_options_are_one_line(kvv_cli: Kvv, arguments: tuple[str, ...], told: str) -> None:
    said = kvv_cli(*arguments)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert told in said.err


def test_first_baselines_are_measured_an_expired_one_passes_nobody_and_prune_keeps_them(kvv_cli: Kvv) -> None:
    key = answer_entries(load_suite("ocrbench").answer_key(load("ocrbench", fixture=True)))
    Path("night.toml").write_text(POLICY, "utf-8")
    with MockServer(MockConfig(answers=key)) as server:
        base = ("--base-url", server.base_url)
        made = kvv_cli("baseline", "init", *ASKED, *base, "--count", "1", "--expires", "1d", "--force")
        assert (made.code, "accepted" in made.out) == (0, True), made
        night = kvv_cli("nightly", *ASKED, *base)
        assert (night.code, night.out.startswith("PASS against the baseline")) == (0, True), night
        [accepted] = Path("baselines").glob("*/*.json")
        table = json.loads(accepted.read_text("utf-8"))
        accepted.write_text(json.dumps({**table, "expires": "2020-01-01"}), "utf-8")
        late = kvv_cli("nightly", *ASKED, *base)
        assert (late.code, "the baseline expired on 2020-01-01" in late.out) == (3, True), late
    runs = {path.parent.name for path in Path("reports").glob("*/store.sqlite")}
    assert "removed" not in kvv_cli("prune", "--keep", "30d").out
    pruned = kvv_cli("prune", "--keep", "0d")
    assert pruned.out.count("removed ") == len(runs) - 1
    left = {path.parent.name for path in Path("reports").glob("*/store.sqlite")}
    assert left == {table["side"]["run_id"]}
    assert {path.parent.name for path in Path("reports").glob("*/report.json")} == runs
