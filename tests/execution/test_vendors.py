"""Several endpoints side by side: one seeded order, one pace, one budget, a run folder each and one comparison; layers,
dead sides, keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w

from kvv.cli.verbs.several_endpoints import exit_code
from kvv.core import Outcome
from kvv.execution.answer_key import answer_entries, keyed_suites
from kvv.execution.scheduling.pacing import SLACK
from kvv.mockserver import MockConfig, MockServer
from kvv.storage.run_folder import runs_under
from kvv.storage.store import Store

KEY = answer_entries(keyed_suites({}))
#: a completion, and no answer to anything
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "\\boxed{1}"}, "finish_reason": "stop"}
UNGATED = "required-gate-missing: aime2025 was only reported"
USAGE = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
WRONG = json.dumps(
    {"id": "x", "object": "chat.completion", "created": 1, "model": "kimi-k3", "choices": [CHOICE], "usage": USAGE}
).encode()
AIME = (
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
    # no contract pass beside it
    "--case",
    "aime2025/*",
)


def endpoint(stack: ExitStack, **how: Any) -> MockServer:
    return stack.enter_context(MockServer(MockConfig(answers=KEY, **how)))


@dataclass
class Compared:
    """What one call of `kvv vendors` left: its own comparison and the runs by their name."""

    ran: Any
    folder: Path
    data: Any
    runs: Mapping[str, Path]

    def report(self, name: str) -> Any:
        return json.loads((self.runs[name] / "report.json").read_text("utf-8"))


def side_by_side(kvv_cli: Any, sides: Sequence[Mapping[str, Any]], *arguments: str) -> Compared:
    Path("sides.toml").write_text(tomli_w.dumps({"vendor": list(sides)}), "utf-8")
    ran = kvv_cli("vendors", "sides.toml", *arguments)
    (folder,) = ran.root.glob("*-vendors-*")
    runs = {
        json.loads((run / "report.json").read_text("utf-8"))["endpoint"]["vendor"]: run for run in runs_under(ran.root)
    }
    return Compared(ran, folder, json.loads((folder / "comparison.json").read_text("utf-8")), runs)


def starts_and_ends(run: Path) -> tuple[list[float], list[float]]:
    """Seconds at which the benchmark's requests began and ended, by the stored UTC times, in order."""
    begun, ended = [], []
    with Store.open(run / "store.sqlite", read_only=True) as store:
        for case, samples in store.cases("aime2025"):
            for sample in range(samples):
                for stored in store.exchanges(case.id, sample):
                    begin = datetime.fromisoformat(stored.exchange.started).timestamp()
                    begun.append(begin)
                    ended.append(begin + stored.exchange.timing.total_ms / 1000)
    return sorted(begun), sorted(ended)


def lead(ahead: Path, behind: Path) -> int:
    """By how many works one side was at most ahead of what the other had concluded."""
    begun, (_, ended) = starts_and_ends(ahead)[0], starts_and_ends(behind)
    return max(number - sum(end <= begin + 0.02 for end in ended) for number, begin in enumerate(begun))


def order(run: Path) -> list[str]:
    with Store.open(run / "store.sqlite", read_only=True) as store:
        found = sorted(
            (s.exchange.started, f"{s.exchange.identity.case}#{s.exchange.identity.sample}") for s in store.exchanges()
        )
    return [case for _, case in found if case.startswith("aime2025/")]


def test_unequal_vendors_are_told_apart_equal_ones_are_tied_and_none_runs_ahead(kvv_cli: Any) -> None:
    with ExitStack() as stack:
        fast, slow, bad = (
            endpoint(stack, accuracy=0.9, seed=3),
            endpoint(stack, accuracy=0.9, seed=5, ttft_ms=100),
            endpoint(stack, accuracy=0.3),
        )
        sides = [
            {"name": name, "base_url": server.base_url}
            for name, server in (("fast", fast), ("slow", slow), ("bad", bad))
        ]
        found = side_by_side(kvv_cli, sides, *AIME)
    assert found.ran.code == 0
    (suite,) = found.data["quality"]
    assert [set(group) for group in suite["tie_groups"]] == [{"A", "B"}, {"C"}]
    assert {(pair["first"], pair["second"]): pair["shown"] for pair in suite["pairs"] if pair["primary"]} == {
        ("A", "B"): False,
        ("A", "C"): True,
        ("B", "C"): True,
    }
    assert found.data["sides"] == ["fast", "slow", "bad"]
    assert {path.name for path in found.folder.iterdir()} == {"comparison.md", "comparison.json", "comparison.html"}
    assert "[A B] [C]" in found.ran.out
    assert re.match(
        r"3 runs compared: 2 of 3 differences in quality are shown, the largest: (fast|slow) is better than bad by \d",
        found.ran.out,
    )
    # the same seeded order, and the fast sides wait for the slow one
    assert set(order(found.runs["fast"])) == set(order(found.runs["slow"]))
    assert len(set(order(found.runs["fast"])[:4]) & set(order(found.runs["slow"])[:4])) >= 3
    for name in ("fast", "bad"):
        assert 1 < lead(found.runs[name], found.runs["slow"]) <= SLACK + 4 + 1
    # each is a run like any other
    for name, run in found.runs.items():
        assert kvv_cli("report", str(run)).code == 0
        assert kvv_cli("score", str(run), "-q").code == 3  # no reference: nothing is decided
        assert f"-{name}-kimi-k3-" in run.name
    assert kvv_cli("compare", *map(str, found.runs.values())).code == 0
    assert kvv_cli("show", "aime2025/own-01", "--run", str(found.runs["bad"])).code == 0


def test_equal_scores_hide_no_broken_contract_and_the_title_says_what_would_show_a_loss(kvv_cli: Any) -> None:
    """Only a benchmark is asked for; the contract is looked at beside it."""
    benchmark = ("aime2025", "--data", "aime2025=fixture", "--samples", "2", "--limit", "4", "--model", "kimi-k3")
    prices = {"input": 1.0, "output": 2.0}
    with ExitStack() as stack:
        sides = [
            {"name": name, "base_url": endpoint(stack, faults=faults).base_url, "prices": prices}
            for name, faults in (("good", ()), ("bad", ("C12",)))
        ]
        found = side_by_side(kvv_cli, sides, *benchmark)
    assert "a comparison looks at the contract too" in found.ran.err
    assert {suite["suite"] for suite in found.data["quality"]} == {"aime2025"}
    title = (found.folder / "comparison.md").read_text("utf-8").splitlines()[0]
    assert "2 runs compared: bad breaks chunk/id" in title
    assert "good breaks" not in title
    assert "no difference in quality is shown in 1 pairs" in title
    # 8 equal answers a side are read as if one were not: 1/8 of (1.96 + .84)^2/.1^2
    said = r"10 points would show in aime2025 from about 99 answers a side on (8 now; \$9.12 more for all sides)"
    assert said in title
    assert found.ran.code == 1


def test_the_layer_that_breaks_a_case_is_named(kvv_cli: Any) -> None:
    with ExitStack() as stack:
        engine, gateway = endpoint(stack), endpoint(stack, faults=("A05",))
        sides = [
            {"layer": "engine", "surface": "vendor", "base_url": engine.base_url},
            {"layer": "gateway", "base_url": gateway.base_url},
        ]
        found = side_by_side(kvv_cli, sides, "params", "--model", "kimi-k3", "--case", "params/rejected/*")
    assert {line["text"] for line in found.data["verdict_lines"]} == {"engine ok, gateway broken"}
    # it takes n = 2 and answers once: a rule sees it where no case does
    assert [line["case"] for line in found.data["verdict_lines"] if line["kind"] == "rule"] == ["chunk/choice-count"]
    lines = [line for line in found.data["verdict_lines"] if line["kind"] == "case"]
    assert lines
    assert all(
        line["verdicts"][1] == {"side": "gateway", "verdict": "fail", "reason": "invalid-request-accepted"}
        for line in lines
    )
    assert f"engine ok, gateway broken: {len(lines)} cases" in found.ran.out
    assert "engine ok, gateway broken: 1 rule" in (found.folder / "comparison.md").read_text("utf-8")
    assert found.ran.code == 1


def test_a_side_that_breaks_only_a_passive_rule_fails_and_is_named(kvv_cli: Any) -> None:
    """Every contract case passes on all sides: what breaks clients is seen by a rule alone."""
    with ExitStack() as stack:
        servers = {"alpha": endpoint(stack), "beta": endpoint(stack, seed=2), "gamma": endpoint(stack, faults=("B19",))}
        sides = [{"name": name, "base_url": server.base_url} for name, server in servers.items()]
        found = side_by_side(kvv_cli, sides, "tools", "--model", "kimi-k3", "--case", "tools/parallel*", "-q")
    assert found.ran.code == 1
    first = found.ran.out.splitlines()[0]
    (rule,) = found.data["rules"]
    (seen,) = [side["found"] for side in rule["sides"] if side["found"]]
    assert first.startswith(f"3 runs compared: gamma breaks tools/index-reused ({seen['exchanges']} answers)")
    assert not {"alpha", "beta"} & set(first.split())
    assert (rule["rule"], rule["level"], [side["verdict"] for side in rule["sides"]]) == (
        "tools/index-reused",
        "must",
        ["pass", "pass", "fail"],
    )
    assert found.data["contract_groups"] == [
        {"contract": "keeps", "runs": ["A", "B"]},
        {"contract": "breaks", "runs": ["C"]},
    ]
    assert not any(row["only_first"] + row["only_second"] for row in found.data["contract"])
    (line,) = found.data["verdict_lines"]
    assert (line["kind"], line["text"]) == ("rule", "alpha ok, beta ok, gamma broken")
    assert "Passive rules" not in found.ran.out  # -q: the first lines, and where the rest is
    assert "tools/index-reused" in (found.folder / "comparison.md").read_text("utf-8")
    # runs made one by one say the same, in every verb that sets runs side by side
    runs = {name: str(run) for name, run in found.runs.items()}
    worse = kvv_cli("compare", runs["alpha"], runs["gamma"])
    assert (
        worse.code,
        worse.out.startswith(f"2 runs compared: B breaks tools/index-reused ({seen['exchanges']} answers)"),
    ) == (0, True)
    equal = kvv_cli("compare", runs["alpha"], runs["beta"])
    assert (equal.code, "breaks" in equal.out, "No rule objected to any answer." in equal.out) == (0, False, True)
    board = json.loads(kvv_cli("leaderboard", *runs.values(), "--format", "json").out)
    assert {row["vendor"]: (row["contract"], len(row["broken"])) for row in board["rows"]} == {
        "alpha": ("pass", 0),
        "beta": ("pass", 0),
        "gamma": ("fail", 1),
    }
    night = json.loads(
        kvv_cli("gate", runs["gamma"], "--baseline", runs["alpha"], "--format", "json", "--allow-different", "all").out
    )
    assert [(row["rule"], [side["verdict"] for side in row["sides"]]) for row in night["rules"]] == [
        ("tools/index-reused", ["pass", "fail"])
    ]
    assert (
        json.loads(
            kvv_cli(
                "gate", runs["beta"], "--baseline", runs["alpha"], "--format", "json", "--allow-different", "all"
            ).out
        )["rules"]
        == []
    )


def _ended(code: int, outcome: Outcome, *why: str, trouble: str = "") -> Any:
    decision = SimpleNamespace(outcome=outcome, why=why)
    return SimpleNamespace(run=SimpleNamespace(exit_code=code), decision=decision, trouble=trouble)


@pytest.mark.parametrize(
    ("second", "compared", "code"),
    [
        (_ended(0, Outcome.PASS), False, 0),
        (_ended(1, Outcome.FAIL, "contract/tools: contract-broken"), True, 1),
        (_ended(4, Outcome.ERROR, "contract/tools: harness-error"), True, 4),
        (_ended(5, Outcome.INCONCLUSIVE, trouble="a budget"), True, 5),
        (_ended(130, Outcome.INCONCLUSIVE, trouble="interrupted"), True, 130),
        (_ended(2, Outcome.INCONCLUSIVE, trouble="the key is refused"), True, 2),
        (
            _ended(3, Outcome.INCONCLUSIVE, UNGATED),
            True,
            0,
        ),  # quality that no reference gates: the other side decides it
        (_ended(3, Outcome.INCONCLUSIVE, UNGATED), False, 3),
        (_ended(3, Outcome.INCONCLUSIVE, UNGATED, trouble="unreachable"), True, 3),
        (_ended(3, Outcome.INCONCLUSIVE, "contract/tools: not-concluded", UNGATED), True, 3),
        (_ended(3, Outcome.INCONCLUSIVE, UNGATED, "required-suite-missing: beam (no judge)"), True, 3),
    ],
)
def test_the_exit_code_is_the_worst_of_the_sides(second: Any, compared: bool, code: int) -> None:
    pair = SimpleNamespace(first=0, second=1, difference=object() if compared else None)
    found: Any = SimpleNamespace(quality=(SimpleNamespace(pairs=(pair,)),))
    assert exit_code([_ended(0, Outcome.PASS), second], found) == code
    failing = _ended(1, Outcome.FAIL, "contract/tools: contract-broken")
    assert exit_code([failing, second], found) == (code if code in (2, 130) else 1)


def test_an_engine_is_judged_on_its_own_surface(kvv_cli: Any) -> None:
    with ExitStack() as stack:
        sides = [
            {"layer": "engine", "base_url": endpoint(stack).base_url},
            {"name": "front", "base_url": endpoint(stack).base_url},
        ]
        found = side_by_side(kvv_cli, sides, "params", "--model", "kimi-k3", "--case", "params/rejected/top-p*")
    assert {name: found.report(name)["surface"] for name in found.runs} == {"engine": "engine", "front": "vendor"}
    assert "compared although they differ" in found.ran.out


@pytest.mark.parametrize("dead", ["from the start", "on the way", "hangs"])
def test_a_dead_side_holds_nobody_back(dead: str, kvv_cli: Any, serve: Any) -> None:

    def answer(number: int, headers: Any, asked: bytes) -> dict[str, Any]:
        if number > 20:
            return {"body": WRONG, "hang": 30.0} if dead == "hangs" else {"status": 503, "body": b""}
        return {"body": WRONG}

    with ExitStack() as stack:
        lives, too = endpoint(stack, accuracy=0.9, seed=3), endpoint(stack, accuracy=0.4, seed=5)
        gone = "http://127.0.0.1:9/v1" if dead == "from the start" else stack.enter_context(serve(answer)).url
        sides = [
            {"name": "lives", "base_url": lives.base_url},
            {"name": "gone", "base_url": gone},
            {"name": "too", "base_url": too.base_url},
        ]
        found = side_by_side(kvv_cli, sides, *AIME, "--first-byte-timeout", "0.5")
    assert found.ran.code == 3
    assert "gone stopped (" in found.ran.err
    assert f"kvv resume {found.runs['gone']}" in found.ran.err
    rows = {name: next(row for row in found.report(name)["suites"] if row["primary"]) for name in found.runs}
    assert (rows["lives"]["n_concluded"], rows["too"]["n_concluded"]) == (96, 96)
    assert rows["gone"]["n_concluded"] == (0 if dead == "from the start" else 20)
    pairs = {(pair["first"], pair["second"]): pair for pair in found.data["quality"][0]["pairs"] if pair["primary"]}
    assert pairs["A", "C"]["shown"]
    assert (pairs["A", "B"]["open"]["second"], pairs["A", "C"]["open"]["second"]) == (
        96 - rows["gone"]["n_concluded"],
        0,
    )


def test_one_budget_is_counted_over_all_sides(kvv_cli: Any) -> None:
    with ExitStack() as stack:
        servers = [endpoint(stack, seed=seed) for seed in range(3)]
        sides = [{"name": f"s{number}", "base_url": server.base_url} for number, server in enumerate(servers)]
        found = side_by_side(kvv_cli, sides, *AIME, "--max-requests", "90")
        counts = [server.stats()["requests"] for server in servers]
    assert found.ran.code == 5
    assert 90 <= sum(counts) <= 90 + 3 * 4
    assert max(counts) - min(counts) <= SLACK + 4 + 1
    for name in found.runs:
        assert "--max-requests is used up" in found.report(name)["trouble"]


def test_each_side_pays_by_its_own_prices_into_one_purse(kvv_cli: Any) -> None:
    with ExitStack() as stack:
        dear, cheap = endpoint(stack, seed=1), endpoint(stack, seed=2)
        sides = [
            {"name": "dear", "base_url": dear.base_url, "prices": {"input": 1000.0, "output": 1000.0}},
            {"name": "cheap", "base_url": cheap.base_url, "prices": {"input": 1.0, "cached": 0.1, "output": 1.0}},
        ]
        found = side_by_side(kvv_cli, sides, *AIME, "--max-cost", "5")
    assert found.ran.code == 5
    cost = {name: found.report(name)["traffic"]["cost"] for name in found.runs}
    assert 5 <= cost["dear"] + cost["cheap"] < 8
    assert cost["dear"] > 300 * cost["cheap"] > 0
    assert "all 2 together: 192 requests" in found.ran.err


def test_a_costly_plan_of_all_sides_wants_a_word_and_leaves_nothing(kvv_cli: Any) -> None:
    sides = [
        {"name": f"s{number}", "base_url": "http://127.0.0.1:9/v1", "prices": {"input": 3.0, "output": 3.0}}
        for number in range(2)
    ]
    Path("sides.toml").write_text(tomli_w.dumps({"vendor": sides}), "utf-8")
    alone = kvv_cli(
        "plan", *AIME, "--base-url", "http://127.0.0.1:9/v1", "--price-in", "3", "--price-out", "3", "--json"
    )
    assert json.loads(alone.out)["cost_usd"] < 20
    refused = kvv_cli("vendors", "sides.toml", *AIME, "--samples", "12")
    assert (refused.code, "say --yes, or set a bound with --max-cost" in refused.err) == (2, True)
    assert not refused.root.exists()


def test_each_key_goes_to_its_own_side_and_nowhere_else(
    kvv_cli: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"ONE_KEY": "sk-one-canary-5512aa", "TWO_KEY": "sk-two-canary-90fe31", "TENANT": "tenant-canary-77"}
    for name, value in {**secrets, "KVV_API_KEY": "sk-default-canary-3"}.items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:
        one, two, three = (stack.enter_context(serve(body=WRONG)) for _ in range(3))
        sides = [
            {
                "name": "one",
                "base_url": one.url,
                "api_key_env": "ONE_KEY",
                "provider": "p-one",
                "extra_body": {"user": "u-one"},
            },
            {"name": "two", "base_url": two.url, "api_key_env": "TWO_KEY", "header_env": {"X-Tenant": "TENANT"}},
            {"name": "three", "base_url": three.url},
        ]
        found = side_by_side(kvv_cli, sides, *AIME, "--limit", "3")
    seen = {name: json.dumps(state.seen) for name, state in (("one", one), ("two", two), ("three", three))}
    where = {secret: {name for name, text in seen.items() if secret in text} for secret in secrets.values()}
    assert where == {secrets["ONE_KEY"]: {"one"}, secrets["TWO_KEY"]: {"two"}, secrets["TENANT"]: {"two"}}
    assert "default-canary" not in json.dumps(seen)  # a side that names no key gets none, not the usual one
    written = b"".join(path.read_bytes() for path in found.ran.root.rglob("*") if path.is_file())
    assert not [value for value in secrets.values() if value.encode() in written or value in found.ran.said]
    with Store.open(found.runs["two"] / "store.sqlite", read_only=True) as store:
        assert not any(b"p-one" in stored.body or b"u-one" in stored.body for stored in store.exchanges())
    with Store.open(found.runs["one"] / "store.sqlite", read_only=True) as store:
        assert all(
            json.loads(s.body)["provider"]["order"] == ["p-one"]
            for s in store.exchanges()
            if s.exchange.identity.case.startswith("aime")
        )


def test_a_side_that_was_stopped_is_resumed_as_a_run_of_its_own(kvv_cli: Any) -> None:
    with ExitStack() as stack:
        servers = [endpoint(stack, seed=seed) for seed in range(2)]
        sides = [{"name": f"s{number}", "base_url": server.base_url} for number, server in enumerate(servers)]
        found = side_by_side(kvv_cli, sides, *AIME, "--max-requests", "60")
        again = kvv_cli("resume", str(found.runs["s1"]), "--max-requests", "200")
    assert again.code in (0, 3)
    assert next(row for row in found.report("s1")["suites"] if row["primary"])["n_concluded"] == 96


def test_json_is_the_comparison(kvv_cli: Any) -> None:
    with ExitStack() as stack:
        sides = [{"name": f"s{number}", "base_url": endpoint(stack, seed=number).base_url} for number in range(2)]
        found = side_by_side(kvv_cli, sides, *AIME, "--limit", "2", "--json")
    assert json.loads(found.ran.out) == found.data
