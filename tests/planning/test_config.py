"""Where options come from, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from kvv.cli.main import REPORT_FORMATS
from kvv.cli.verbs.stored_runs import PARQUET
from kvv.core import Surface
from kvv.core.usage_error import SURFACES, TIERS
from kvv.planning.config import ConfigError, RunConfig, load_config, read_key, revise
from kvv.reporting.finalize import FORMATS


def test_flags_go_over_environment_over_file_over_default(tmp_path: Path) -> None:
    (tmp_path / "kvv.toml").write_text('model = "from-file"\nbase-url = "http://file/v1"\nseed = 5\n')
    config = load_config(
        {"model": "from-flag"},
        environ={"KVV_MODEL": "from-environment", "KVV_BASE_URL": "http://environment/v1"},
        cwd=tmp_path,
    )
    assert (config.model, config.base_url, config.seed, config.tier) == ("from-flag", "http://environment/v1", 5, None)
    assert config.origin == {"model": "flag", "base_url": "KVV_BASE_URL", "seed": "kvv.toml"}


def test_moonshot_and_kvv_name_one_preset_and_record_alike() -> None:
    runs = [load_config({"preset": name}, environ={}) for name in ("moonshot", "kvv")]
    assert [run.model_dump(mode="json")["preset"] for run in runs] == ["kvv", "kvv"]
    assert load_config({}, environ={}).preset is None
    with pytest.raises(ConfigError, match="moonshot"):
        load_config({"preset": "moon"}, environ={})


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
        ({"limit": 0}, "--limit"),
        ({"deadline": -1.0}, "--deadline"),
        ({"deadline": float("nan")}, "--deadline"),
        ({"concurrency": "lots"}, "--concurrency"),
        ({"concurrency": "999999999"}, "--concurrency"),
        ({"samples": 100_000_000}, "--samples"),
        ({"seed": -1}, "--seed"),
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
    assert load_config({"extra_body": f"@{tmp_path / 'body.json'}"}, environ={}, cwd=tmp_path).extra_body == {
        "top_k": 5
    }


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
    [
        ("http://127.0.0.1:8/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:9/v1", True),
        ("https://api.example.com/v1", False),
    ],
)
def test_loopback_endpoints_are_known(url: str, loopback: bool, tmp_path: Path) -> None:
    assert load_config({"base_url": url}, environ={}, cwd=tmp_path).loopback is loopback


@pytest.mark.parametrize("flags", [{"api_key_env": "sk-MyRealSecret-1"}, {"judge_api_key_env": "A=B"}])
def test_a_key_in_place_of_a_variables_name_is_refused_and_not_repeated(
    flags: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="NAME of an environment variable") as error:
        load_config(flags, environ={}, cwd=tmp_path)
    assert "sk-MyRealSecret" not in str(error.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_sampling_values_are_finite(value: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--temperature"):
        load_config({"temperature": value}, environ={}, cwd=tmp_path)


# --- what no header, no JSON and no file system can carry --------------------------------------------

KEY = "sk-Sup3rSecretKey0000"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Host",
            "host",
            "Content-Length",
            "Transfer-Encoding",
            "CONNECTION",
            "Authorization",
            "Content-Type",
            "Accept-Encoding",
            "Expect",
        ),
        *("X Key", " X", "X:", "X\tY", "X\nY", "X\x00", "X\x7f", "X\u00e9", "(x)", '"x"'),
    ],
)
def test_a_header_that_is_not_ours_to_set_or_can_have_no_such_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--header-env") as error:
        load_config({"header_env": [f"{name}=SOME_VARIABLE"]}, environ={}, cwd=tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["X-Api-Key", "api-key", "OpenAI-Organization", "x_y", "Cookie"])
def test_every_other_header_may_be_sent(name: str, tmp_path: Path) -> None:
    assert load_config({"header_env": [f"{name}=SOME_VARIABLE"]}, environ={}, cwd=tmp_path).header_env == {
        name: "SOME_VARIABLE"
    }


def test_a_headers_value_in_place_of_its_variables_name_is_refused_and_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "kvv.toml").write_text(f'header-env = {{ "X-Key" = "{KEY}" }}\n')
    for flags in ({"header_env": [f"X-Key={KEY}"]}, {"trust_config": True}):
        with pytest.raises(ConfigError, match="header") as error:
            load_config(flags, environ={}, cwd=tmp_path)
        assert KEY not in str(error.value)


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("NaN", "JSON object"),
        ('{"a": NaN}', "no JSON number"),
        ('{"a": [1, -Infinity]}', "no JSON number"),
        ('{"a": 1e999}', "no JSON number"),
        ('{"a": "\\ud800"}', "lone surrogate"),
        ('{"\\udfff": 1}', "lone surrogate"),
        ('{"a": ' + DEEP + "}", "nested"),
        ('{"a": ' + "[" * 60 + "]" * 60 + "}", "nested"),
        ('{"a": ' + "9" * 5_000 + "}", "not JSON"),
    ],
)
def test_what_no_json_body_can_hold_is_refused_on_one_line(value: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text(value)
    for given in (value, f"@{tmp_path / 'body.json'}"):
        with pytest.raises(ConfigError, match="--extra-body") as error:
            load_config({"extra_body": given}, environ={}, cwd=tmp_path)
        assert words in str(error.value)
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "text",
    [
        "extra-body = { a = nan }",
        "extra-body = { a = [inf] }",
        "extra-body = { a = 1979-05-27T07:32:00Z }",
        "extra-body = { a = " + "[" * 60 + "]" * 60 + " }",
        "x = " + DEEP,
        "seed = " + "9" * 5_000,
        'out = "a\\u0000b"',
        'tokenizer = "a\\u0000b"',
        'data = { aime2025 = "a\\u0000b" }',
        'reference = ["a\\u0000b"]',
        'model = ""',
        'profile = "  "',
        "case = ['']",
    ],
)
def test_the_same_in_the_file_names_the_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "kvv.toml").write_text(text + "\n")
    with pytest.raises(ConfigError, match=r"kvv\.toml") as error:
        load_config({}, environ={}, cwd=tmp_path)
    assert "\n" not in str(error.value)


TEXT_OPTIONS = [
    name
    for name, field in RunConfig.model_fields.items()
    if "str" in str(field.annotation) and name not in ("extra_body", "origin")
]


@pytest.mark.parametrize("name", TEXT_OPTIONS)
@pytest.mark.parametrize("bad", ["", "  ", "a\0b", "a\udcffb"])
def test_no_option_takes_an_empty_text_a_nul_or_bytes_that_are_no_text(name: str, bad: str, tmp_path: Path) -> None:
    field = RunConfig.model_fields[name]
    value: object = (
        [f"X={bad}"] if "dict" in str(field.annotation) else [bad] if "tuple" in str(field.annotation) else bad
    )
    with pytest.raises(ConfigError) as error:
        load_config({name: value}, environ={}, cwd=tmp_path)
    assert f"--{name.replace('_', '-')}" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_given_anew_on_resuming_is_checked_like_the_rest(tmp_path: Path) -> None:
    begun = load_config({"seed": 7}, environ={}, cwd=tmp_path)
    assert (revise(begun, {"max_requests": 5}).max_requests, revise(begun, {"max_requests": 5}).seed) == (5, 7)
    for flags in ({"deadline": float("nan")}, {"max_requests": 0}, {"base_url": "nowhere"}):
        with pytest.raises(ConfigError, match="--"):
            revise(begun, flags)


def test_the_lists_that_the_parser_offers_are_those_of_the_model() -> None:
    assert tuple(surface.value for surface in Surface) == SURFACES
    assert get_args(get_args(RunConfig.model_fields["tier"].annotation)[0]) == TIERS
    assert set(REPORT_FORMATS) == {*FORMATS, PARQUET}
