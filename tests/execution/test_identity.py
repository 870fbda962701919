"""`kvv identity` against the mock server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvv.cli.main import main
from kvv.core import Credential, Role
from kvv.mockserver import MockConfig, MockServer
from kvv.transport.endpoint import Endpoint, headers


def at(server: MockServer) -> list[str]:
    return ["--base-url", server.base_url, "--model", "mock"]


def mock(**settings: Any) -> MockServer:
    """Without thinking, which would fill so short an answer."""
    return MockServer(MockConfig(model="mock", variant="openai", **settings))


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two runs of a server, as the options that name them."""
    options = []
    for seed in ("1", "2"):
        path = tmp_path_factory.mktemp("official") / f"{seed}.jsonl"
        with mock(seed=int(seed)) as server:
            assert main(["identity", *at(server), "--as-reference", str(path)]) == 0
        options += ["--reference", str(path)]
    return options


def data_of(root: Path) -> dict[str, Any]:
    (path,) = root.glob("*/identity.json")
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


@pytest.mark.parametrize(
    ("faults", "more", "code", "verdict"),
    [((), [], 0, "pass"), (("J12",), [], 1, "fail"), (("J12",), ["--on-difference", "warn"], 0, "fail")],
    ids=["same", "another model", "warned of"],
)
def test_another_model_is_told_from_the_same(
    kvv_cli: Any,
    tmp_path: Path,
    references: list[str],
    faults: tuple[str, ...],
    more: list[str],
    code: int,
    verdict: str,
) -> None:
    with mock(seed=3, faults=faults) as server:
        ran = kvv_cli(
            *("identity", *at(server), *references, *more),
            *("--out", str(tmp_path / "o"), "-q"),
        )
    assert ran.code == code, ran.said
    data = data_of(tmp_path / "o")
    assert data["verdict"] == verdict
    assert data["requests"] <= 200
    assert data["recognised"] is False


def test_an_endpoint_that_recognises_kvv_is_named(
    kvv_cli: Any, tmp_path: Path, references: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with mock(seed=3) as good, mock(faults=("J12",)) as junk:
        # requests that look like anybody's go to the worse model
        sent = Endpoint.__init__

        def routed(self: Endpoint, **fields: Any) -> None:
            sent(self, **fields | ({"base_url": junk.base_url} if fields.get("discreet") else {}))

        monkeypatch.setattr(Endpoint, "__init__", routed)
        ran = kvv_cli(
            *("identity", *at(good), *references),
            *("--out", str(tmp_path / "o")),
        )
    data = data_of(tmp_path / "o")
    assert data["recognised"] is True
    assert data["recognised_p"] < 0.001
    assert data["probes"]["recognisable"] > data["probes"]["rewritten"] == 0
    assert "Requests that look like a harness's are answered differently" in ran.out
    assert ran.code == 1


def test_a_discreet_head_names_no_harness() -> None:
    def agent(*, discreet: bool) -> str | None:
        endpoint = Endpoint(role=Role.TARGET, base_url="http://h/v1", key="k", discreet=discreet)
        return headers(endpoint, Credential.OWN).get("user-agent")

    assert agent(discreet=False) == "kvv"
    assert agent(discreet=True) is None


def wrong(change: Callable[[list[Any]], Any]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        change(lines)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")

    return apply


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (wrong(lambda lines: lines[0]["asked"].update(max_tokens=9)), "was asked in another way: max_tokens differs"),
        (wrong(lambda lines: lines[0].update(kvv_identity=2)), "format 2 is not 1"),
        (wrong(lambda lines: lines[0].update(model="qwen3-8b")), "is of the model 'qwen3-8b'"),
        (wrong(lambda lines: lines[3].update(prompt=99)), "official-1.jsonl:4: no such prompt"),
        (wrong(lambda lines: lines[3].update(texts="x")), "official-1.jsonl:4: "),
        (lambda path: path.write_text("{", "utf-8"), "official-1.jsonl:1: "),
        (lambda path: path.write_bytes(b"\xff"), "cannot read"),
        (lambda path: path.write_bytes((path.parent / "official-2.jsonl").read_bytes()), "holds the same run"),
    ],
)
def test_a_wrong_reference_is_named_in_one_line(
    kvv_cli: Any, tmp_path: Path, change: Callable[[Path], Any], said: str
) -> None:
    references = []
    for number in (1, 2):
        path = tmp_path / f"official-{number}.jsonl"
        header = {"kvv_identity": 1, "model": "kimi-k3", "created": "", "asked": _asked()}
        rows = [{"prompt": i, "texts": [f"{number} {i}"]} for i in range(20)]
        path.write_text("".join(json.dumps(line) + "\n" for line in (header, *rows)), "utf-8")
        references += ["--reference", str(path)]
    change(tmp_path / "official-1.jsonl")
    ran = kvv_cli("identity", "--base-url", "http://127.0.0.1:9/v1", "--model", "kimi-k3", *references)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1


def _asked() -> dict[str, Any]:
    from kvv.execution.identity.ask import settings_of
    from kvv.planning.config import load_config
    from kvv.profiles.profile import load_profile

    return settings_of(load_config({}, environ={}), load_profile("kimi-k3"))


def test_a_dead_endpoint_leaves_no_reference(kvv_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvv.execution.identity.ask.PAUSE_S", 0.01)
    ran = kvv_cli(
        *("identity", "--base-url", "http://127.0.0.1:9/v1", "--model", "kimi-k3"),
        *("--as-reference", str(tmp_path / "r.jsonl")),
    )
    assert ran.code == 3
    assert "is not written: 140 of 140 requests got no answer: connect" in ran.err
    assert not (tmp_path / "r.jsonl").exists()


def test_official_runs_are_needed(kvv_cli: Any) -> None:
    ran = kvv_cli("identity")
    assert ran.code == 2
    assert "--reference: name the files of two official runs" in ran.err
