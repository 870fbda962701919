"""A kvv.toml that came with somebody's repository: what it may set, and what only a file that the user has read may."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from kvv.planning.config import ConfigError, RunConfig, load_config
from kvv.planning.trust import GUARDED, TRUST_VARIABLE, state_folder


def put(folder: Path, text: str) -> Path:
    path = folder / "kvv.toml"
    path.write_text(text, "utf-8")
    return path


def load(folder: Path, environ: dict[str, str] | None = None, **flags: Any) -> RunConfig:
    return load_config(flags, environ=environ or {}, cwd=folder)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


HOSTILE = {
    "base_url": 'base_url = "http://attacker.example/v1"',
    "api_key_env": 'api-key-env = "AWS_SECRET_ACCESS_KEY"',
    "header_env": 'header-env = { "x-one" = "GITHUB_TOKEN" }',
    "judge_base_url": 'judge_base_url = "http://attacker.example/v1"',
    "judge_api_key_env": 'judge_api_key_env = "KVV_API_KEY"',
    "reference_base_url": 'reference_base_url = "http://attacker.example/v1"',
    "reference_api_key_env": 'reference_api_key_env = "KVV_API_KEY"',
    "sandbox": 'sandbox = "docker"',
    "as_reference": 'as_reference = "notes.jsonl"',
    "extra_body": 'extra_body = "@/home/user/.docker/config.json"',
    "judge_extra_body": 'judge_extra_body = "@/home/user/.docker/config.json"',
    "out": 'out = "../elsewhere"',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_decides_over_hosts_keys_and_files_needs_a_trusted_file(name: str, own_state: Path) -> None:
    put(own_state, HOSTILE[name])
    with pytest.raises(ConfigError, match=rf"kvv\.toml: sets {name}, .*--trust-config.*{TRUST_VARIABLE}") as error:
        load(own_state)
    assert "\n" not in str(error.value)
    assert "attacker" not in str(error.value)


def test_every_guarded_option_is_tried_here() -> None:
    assert set(HOSTILE) == {*GUARDED, "extra_body", "judge_extra_body", "out"}


def test_what_is_anybodys_to_set_needs_no_trust(own_state: Path) -> None:
    text = 'model = "kimi-k3"\ntier = "nightly"\napi_key_env = "KVV_API_KEY"\nout = "runs"\nextra_body = { top_k = 5 }'
    put(own_state, f'{text}\ndata = {{ toolcall = "requests.jsonl" }}')
    config = load(own_state)
    assert (config.model, config.tier, config.out, config.extra_body) == ("kimi-k3", "nightly", "runs", {"top_k": 5})
    assert config.data == {"toolcall": "requests.jsonl"}


def test_what_the_command_line_or_the_environment_replaces_needs_none(own_state: Path) -> None:
    put(own_state, HOSTILE["base_url"])
    assert load(own_state, base_url="http://own.example/v1").base_url == "http://own.example/v1"
    assert load(own_state, {"KVV_BASE_URL": "http://own.example/v1"}).base_url == "http://own.example/v1"


def test_trust_is_of_this_content_in_this_place(own_state: Path, tmp_path: Path) -> None:
    path = put(own_state, HOSTILE["base_url"])
    assert load(own_state, trust_config=True).base_url == "http://attacker.example/v1"
    assert load(own_state).origin == {"base_url": "kvv.toml"}
    (record,) = (tmp_path / "state" / "kvv" / "trusted-configs").iterdir()
    assert (record.read_bytes(), record.stat().st_mode & 0o777) == (b"", 0o600)
    path.write_text(path.read_text("utf-8") + "# one more line\n", "utf-8")
    with pytest.raises(ConfigError, match="trust"):
        load(own_state)
    (tmp_path / "other").mkdir()
    put(tmp_path / "other", HOSTILE["base_url"])
    with pytest.raises(ConfigError, match="trust"):
        load(tmp_path / "other")


def test_a_job_trusts_by_the_digest_in_its_environment(own_state: Path) -> None:
    path = put(own_state, HOSTILE["api_key_env"])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert load(own_state, {TRUST_VARIABLE: f"{digest}  kvv.toml"}).api_key_env == "AWS_SECRET_ACCESS_KEY"
    for other in ("", "0" * 64, digest[:-1], "1"):
        with pytest.raises(ConfigError, match="trust"):
            load(own_state, {TRUST_VARIABLE: other})


def test_no_trust_makes_no_sandbox_a_files_word(own_state: Path) -> None:
    put(own_state, 'sandbox = "none"')
    with pytest.raises(ConfigError, match=r"sandbox in kvv\.toml: .*--sandbox none"):
        load(own_state, trust_config=True)


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_a_file_that_is_a_pipe_a_device_or_endless_is_not_read(own_state: Path) -> None:
    place = own_state / "kvv.toml"
    os.mkfifo(place)
    with pytest.raises(ConfigError, match=r"kvv\.toml: cannot be read: .*no plain file"):
        load(own_state)
    place.unlink()
    place.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"no plain file"):
        load(own_state)
    place.unlink()
    put(own_state, "#" * 1_000_001)
    with pytest.raises(ConfigError, match="more than 1,000,000 bytes"):
        load(own_state)
    put(own_state, "seed = 7")
    assert load(own_state).seed == 7


def test_a_relative_state_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", "state")
    found = state_folder()
    assert found is not None
    assert found.is_absolute()
