"""Where options come from, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvv.config import ConfigError, load_config, read_key


def test_flags_go_over_environment_over_file_over_default(tmp_path: Path) -> None:
    (tmp_path / "kvv.toml").write_text('model = "from-file"\nbase-url = "http://file/v1"\nseed = 5\n')
    config = load_config({"model": "from-flag"}, environ={"KVV_MODEL": "from-environment", "KVV_BASE_URL": "http://environment/v1"}, cwd=tmp_path)
    assert (config.model, config.base_url, config.seed, config.tier) == ("from-flag", "http://environment/v1", 5, None)
    assert config.origin == {"model": "flag", "base_url": "KVV_BASE_URL", "seed": "kvv.toml"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"base_url": "ftp://x"}, "--base-url"),
        ({"base_url": "http://user:secret@:bad/v1"}, "--base-url"),
        ({"base_url": "http://a..b/v1"}, "--base-url"),
        ({"base_url": "http://a b/v1"}, "--base-url"),
        ({"extra_body": "{"}, "--extra-body"),
        ({"extra_body": "[1]"}, "--extra-body: must be a JSON object"),
        ({"extra_body": "@/nowhere/at/all"}, "--extra-body"),
        ({"data": ["aime2025"]}, "--data: wants NAME=VALUE"),
        ({"max_tokens": ["aime2025=many"]}, "--max-tokens"),
        ({"effort": ["extreme"]}, "--effort"),
        ({"limit": 0}, "--limit"),
        ({"deadline": -1.0}, "--deadline"),
        ({"deadline": float("nan")}, "--deadline"),
        ({"concurrency": "lots"}, "--concurrency"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_option(flags: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(flags, environ={}, cwd=tmp_path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_a_wrong_value_in_the_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "kvv.toml").write_text("seed = 'x'\n")
    with pytest.raises(ConfigError, match=r"seed in kvv\.toml"):
        load_config({}, environ={}, cwd=tmp_path)
    (tmp_path / "kvv.toml").write_text("colour = 'red'\n")
    with pytest.raises(ConfigError, match=r"colour in kvv\.toml"):
        load_config({}, environ={}, cwd=tmp_path)
    (tmp_path / "kvv.toml").write_text("seed = = 1\n")
    with pytest.raises(ConfigError, match=r"kvv\.toml"):
        load_config({}, environ={}, cwd=tmp_path)


def test_max_tokens_is_for_all_or_for_one_suite(tmp_path: Path) -> None:
    config = load_config({"max_tokens": ["16384", "aime2025=98304"]}, environ={}, cwd=tmp_path)
    assert config.max_tokens == {"": 16384, "aime2025": 98304}


def test_extra_body_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text('{"top_k": 5}')
    assert load_config({"extra_body": f"@{tmp_path / 'body.json'}"}, environ={}, cwd=tmp_path).extra_body == {"top_k": 5}


def test_keys_are_read_by_name_and_never_shown() -> None:
    assert read_key("K", required=True, environ={"K": " sk-1 "}) == "sk-1"
    assert read_key("K", required=False, environ={}) is None
    with pytest.raises(ConfigError, match="K is not set"):
        read_key("K", required=True, environ={})
    with pytest.raises(ConfigError) as error:
        read_key("K", required=True, environ={"K": "sk-\ninjected"})
    assert "injected" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "loopback"),
    [("http://127.0.0.1:8/v1", True), ("http://localhost/v1", True), ("http://[::1]:9/v1", True), ("https://api.example.com/v1", False)],
)
def test_loopback_endpoints_are_known(url: str, loopback: bool, tmp_path: Path) -> None:
    assert load_config({"base_url": url}, environ={}, cwd=tmp_path).loopback is loopback


@pytest.mark.parametrize("flags", [{"api_key_env": "sk-MyRealSecret-1"}, {"judge_api_key_env": "A=B"}, {"api_key_env": ""}])
def test_a_key_in_place_of_a_variables_name_is_refused_and_not_repeated(flags: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NAME of an environment variable") as error:
        load_config(flags, environ={}, cwd=tmp_path)
    assert "sk-MyRealSecret" not in str(error.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_sampling_values_are_finite(value: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--temperature"):
        load_config({"temperature": value}, environ={}, cwd=tmp_path)
