"""The file of `kvv vendors`: what is wrong is one line that names file, line, entry and key, whatever the file
holds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvv.core import Surface
from kvv.planning.config import NO_KEY, ConfigError, RunConfig, read_key
from kvv.planning.vendors_file import read_vendors

BASE = RunConfig(
    model="kimi-k3",
    samples=2,
    max_cost=5.0,
    price_in=9.0,
    api_key_env="KVV_API_KEY",
    header_env={"X-A": "KVV_A"},
    provider="global",
)
ONE = '[[vendor]]\nname = "one"\nbase_url = "https://one.example/v1"\n'
TWO = '[[vendor]]\nname = "two"\nbase_url = "https://two.example/v1"\n'


def read(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "sides.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return read_vendors(path, BASE)


def test_each_side_has_its_own_and_all_have_the_common_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_ONE", "k")
    monkeypatch.setenv("T", "t")
    more = (
        'api_key_env = "KEY_ONE"\nmodel = "k3-fp8"\nprovider = "p"\nprices = { input = 0.5, output = 2 }\nextra_body ='
        " { a = [1, 2] }\n"
    )
    one, two = read(
        tmp_path,
        ONE
        + more
        + '[vendor.header_env]\nX-T = "T"\n'
        + '[[vendor]]\nlayer = "engine"\nbase_url = "http://10.0.0.1:8000/v1"\n',
    )
    assert (one.name, one.config.model, one.config.api_key_env, one.config.provider) == (
        "one",
        "k3-fp8",
        "KEY_ONE",
        "p",
    )
    assert (one.config.price_in, one.config.price_cached, one.config.price_out) == (0.5, 0.5, 2.0)
    assert (one.config.extra_body, one.config.header_env, one.config.surface) == (
        {"a": [1, 2]},
        {"X-T": "T"},
        Surface.VENDOR,
    )
    # nothing of another side, nor what was given for an endpoint elsewhere
    assert (two.name, two.config.surface, two.config.model) == ("engine", Surface.ENGINE, "kimi-k3")
    assert (two.config.api_key_env, two.config.provider, two.config.header_env, two.config.extra_body) == (
        NO_KEY,
        None,
        {},
        {},
    )
    assert (one.config.samples, two.config.samples, one.config.max_cost) == (2, 2, 5.0)
    monkeypatch.setenv(NO_KEY, "sk-mistaken")
    assert read_key(NO_KEY, required=False) is None


@pytest.mark.parametrize(
    ("page", "read_as"),
    [
        ("README.md", [("alpha", None, None, "kimi-k3"), ("beta", None, None, "kimi-k3")]),
        (
            "docs/how-to/compare-vendors.md",
            [("alpha", 2.5, None, "kimi-k3"), ("beta behind a gateway", None, "beta", "moonshot/kimi-k3")],
        ),
    ],
)
def test_the_documented_examples_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, read_as: list[Any]
) -> None:
    text = (Path(__file__).resolve().parents[2] / page).read_text("utf-8")
    (example,) = re.findall(r"```toml\n(# sides\.toml.*?)```", text, re.DOTALL)
    for name in ("ALPHA_KEY", "BETA_KEY", "GATEWAY_KEY"):
        monkeypatch.setenv(name, "k")
    sides = read(tmp_path, example)
    assert [(s.name, s.config.price_out, s.config.provider, s.config.model) for s in sides] == read_as


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "sides.toml: vendor: is missing"),
        (ONE, "sides.toml: vendor: wants 2 to 20 [[vendor]] tables"),
        (ONE * 21, "sides.toml: vendor: wants 2 to 20 [[vendor]] tables"),
        ("[[vendor]\n", "sides.toml: Expected ']]' at the end of an array declaration (at line 1"),
        (ONE + ONE, "sides.toml, line 5: vendor 2 (one), name: 'one' stands there twice"),
        (ONE + '[[vendor]]\nname = "two"\n', "sides.toml, line 4: vendor 2 (two), base_url: is missing"),
        (
            ONE + '[[vendor]]\nbase_url = "https://x/v1"\n',
            "sides.toml, line 4: vendor 2, name: is missing (a layer may stand in its place)",
        ),
        (
            ONE + '[[vendor]]\nname = "two"\nbase_url = "ftp://x"\n',
            "sides.toml, line 6: vendor 2 (two), base_url: wants http(s)://HOST",
        ),
        (
            ONE + TWO + "temperature = 1\n",
            "sides.toml, line 7: vendor 2 (two), temperature: no such key; known: base_url, name,",
        ),
        (
            ONE + TWO + 'api_key = "sk-canary-1"\n',
            "sides.toml, line 7: vendor 2 (two), api_key: a key never stands in a file; api_key_env names",
        ),
        (
            ONE + TWO + 'api_key_env = "sk-canary-1"\n',
            "line 7: vendor 2 (two), api_key_env: wants the NAME of an environment variable, not a key",
        ),
        (
            ONE + TWO + 'api_key_env = "NOT_SET_1"\n',
            "sides.toml, line 4: vendor 2 (two): the environment variable NOT_SET_1 is not set",
        ),
        (
            ONE + TWO + "prices = { input = -1, output = 1 }\n",
            "line 7: vendor 2 (two), prices.input: Input should be greater than or equal to 0",
        ),
        (ONE + TWO + "prices = { input = nan, output = 1 }\n", "line 7: vendor 2 (two), prices.input: Input should be"),
        (ONE + TWO + "[vendor.prices]\ninput = 1\n", "line 7: vendor 2 (two), prices.output: is missing"),
        (
            ONE + TWO + 'surface = "moon"\n',
            "line 7: vendor 2 (two), surface: Input should be 'vendor', 'engine' or 'official'",
        ),
        (ONE + TWO + 'layer = "cellar"\n', "line 7: vendor 2 (two), layer: Input should be 'engine' or 'gateway'"),
        (
            ONE + TWO + 'header_env = { Host = "X" }\n',
            "line 7: vendor 2 (two), header_env: the header Host cannot be set",
        ),
        (
            ONE + TWO + "extra_body = { a = 1979-05-27 }\n",
            "line 7: vendor 2 (two), extra_body: holds a date, which JSON has not",
        ),
        (ONE + TWO + 'model = ""\n', "model: is missing (or --model for all)"),
        (
            ONE + TWO + 'prices = { input = 1, output = 1, "a\\nb\\u202e" = 1 }\n',
            "vendor 2 (two), prices.a?b?: no such key; known: input, output",
        ),
        ("limit = 3\n" + ONE + TWO, "sides.toml: limit: no such key; known: vendor"),
        ("vendor = 1\n", "sides.toml: vendor: Input should be a valid tuple"),
        ("vendor = [1, 2]\n", "sides.toml: vendor 1: Input should be a valid dictionary"),
        (f"a = {'[' * 3000}", "sides.toml: "),
        (f"a = {'9' * 6000}", "sides.toml: "),
    ],
)
def test_what_is_wrong_is_named_by_line_entry_and_key(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "sides.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError) as error:
        read_vendors(path, RunConfig() if "--model for all" in words else BASE)
    assert words in str(error.value)
    assert str(error.value).startswith(f"{path}")
    assert "\n" not in str(error.value)
    assert "sk-canary" not in str(error.value)


def test_a_line_that_only_looks_like_an_entry_gives_no_wrong_line(tmp_path: Path) -> None:
    looks = '[[vendor]]\nname = "a"\nbase_url = "https://a/v1"\nextra_body = { t = """\n[[vendor]]\n""" }\n'
    with pytest.raises(ConfigError, match=r"sides\.toml: vendor 2 \(two\), layer: "):
        read(tmp_path, looks + TWO + 'layer = "x"\n')


@pytest.mark.parametrize("made", ["folder", "absent", "binary", "large"])
def test_a_file_that_cannot_be_read_is_one_line(made: str, tmp_path: Path, kvv_cli: Any) -> None:
    path = tmp_path / "x.toml"
    match made:
        case "folder":
            path.mkdir()
        case "binary":
            path.write_bytes(b"\xff\xfe\x00")
        case "large":
            path.write_bytes(b"#" * 1_000_001)
    ran = kvv_cli("vendors", str(path))
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert ran.err.startswith(f"kvv vendors: {path}: ")


@pytest.mark.parametrize("option", [("--shard", "1/2"), ("--as-reference", "x.jsonl"), ("--early-stop",)])
def test_options_that_make_no_sense_for_several_sides_are_refused(option: tuple[str, ...], kvv_cli: Any) -> None:
    ran = kvv_cli("vendors", "x.toml", *option)
    assert (ran.code, f"{option[0]}: not with" in ran.err) == (2, True)


def test_what_a_side_cannot_run_names_the_side(kvv_cli: Any) -> None:
    Path("x.toml").write_text(ONE + TWO + 'profile = "nobody"\n', "utf-8")
    ran = kvv_cli("vendors", "x.toml", "params", "--model", "kimi-k3")
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert "x.toml: vendor two: --profile: " in ran.err
    assert not ran.root.exists()


VALUES = st.recursive(
    st.one_of(st.text(max_size=30), st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), st.datetimes()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "name",
        "layer",
        "base_url",
        "model",
        "api_key_env",
        "provider",
        "extra_body",
        "header_env",
        "surface",
        "profile",
        "prices",
        "other",
    ]
)
GOOD = st.fixed_dictionaries(
    {
        "name": st.text(min_size=1, max_size=70),
        "base_url": st.sampled_from(["https://a.example/v1", "http://[::1]:80/v1"]),
    }
)
ENTRY = st.builds(lambda good, more: {**good, **more}, GOOD, st.dictionaries(KEYS, VALUES, max_size=2))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.one_of(st.lists(ENTRY, max_size=4), VALUES))
def test_any_table_is_read_or_refused_in_one_line(tmp_path: Path, vendor: Any) -> None:
    path = tmp_path / "sides.toml"
    try:
        path.write_text(tomli_w.dumps({"vendor": vendor}), "utf-8")
    except UnicodeEncodeError:
        return
    wrong = ""
    try:
        sides = read_vendors(path, BASE)
    except ConfigError as error:
        wrong = str(error)
    if wrong:
        assert wrong.startswith(str(path))
        assert len(wrong.splitlines()) == 1
    else:
        assert len({side.name.casefold() for side in sides}) == len(sides) == len(vendor)
        assert all(side.config.provider != "global" and side.config.api_key_env != "KVV_API_KEY" for side in sides)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
)
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "sides.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as error:
        read_vendors(path, BASE)
    assert str(error.value).startswith(str(path))
    assert len(str(error.value).splitlines()) == 1
