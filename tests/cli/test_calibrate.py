"""`kvv calibrate` against the reference endpoint in its three variants, and vendors held to what it wrote."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kvv.cli.main import build_parser
from kvv.cli.verbs.calibrate import calibrate
from kvv.mockserver import MockConfig, MockServer
from kvv.profiles.profile import Profile, find_profile

FIRST = datetime(2026, 11, 29, 12, tzinfo=UTC)
CASES = ("--case", "calibration/*", "--case", "params/rejected/*")
KEY = "sk-calibrate-7741"


def options(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(["calibrate", *words])


def measure(folder: Path, *, days: int, **config: Any) -> Path:
    """The file after so many days; the first run's folders lie beside it."""
    file = folder / "official.toml"
    with MockServer(MockConfig(model="kimi-k3", **config)) as server:
        for day in range(days):
            again = ("--merge", str(file)) if day else ("--to", str(file))
            asked = options(
                "params",
                *CASES,
                "--base-url",
                server.base_url,
                "--model",
                "kimi-k3",
                "-q",
                "--out",
                str(folder),
                *again,
            )
            assert calibrate(asked, now=lambda day=day: FIRST + timedelta(days=day)) == 0
    return file


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    made: dict[str, Path] = {}

    def get(variant: str, days: int = 2) -> Path:
        name = f"{variant}-{days}"
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("KVV_API_KEY", KEY)
                made[name] = measure(tmp_path_factory.mktemp(name), days=days, variant=variant)
        return made[name]

    return get


def parameters(profile: Profile, kind: str) -> list[dict[str, Any]]:
    return [dict(entry) for entry in getattr(profile.decoding, kind)]


#: what the variants differ in: two choices, a top_p of 0.8, six stop sequences, dynamic tools, the reasoning's field
EXPECTED = {
    "kimi-k3": (False, False, 5, True, ("reasoning_content",)),
    "openai": (True, True, 4, False, ("reasoning_content",)),
    "vllm": (True, True, None, True, ("reasoning",)),
}


@pytest.mark.parametrize("variant", EXPECTED)
def test_two_days_of_a_variant_make_the_profile_of_what_it_does(variant: str, files: Any) -> None:
    two, low, stops, dynamic, fields = EXPECTED[variant]
    file = files(variant)
    profile = find_profile(str(file))
    assert profile.claims.n is two
    assert ({"n": 2} in parameters(profile, "accepted")) is two
    assert ({"top_p": 0.8} in parameters(profile, "rejected")) is not low
    assert {"temperature": -0.1} in parameters(profile, "rejected")
    measured_limit = "stop_limit" in file.read_text("utf-8").partition("\n[calibrated]")[0]
    assert (profile.decoding.stop_limit if measured_limit else None) == stops
    assert profile.claims.dynamic_tools is dynamic
    assert profile.thinking.fields == fields
    assert (profile.tokens.required_note, profile.tokens.json_object_note) == (36, 47)
    assert profile.calibrated is not None
    assert {one.asked for one in profile.calibrated.evidence} == {6}
    assert all(len(one.rounds) == 2 for one in profile.calibrated.evidence)


def test_one_day_is_evidence_and_no_rule(files: Any) -> None:
    text = files("openai", 1).read_text("utf-8")
    assert "[[calibrated.evidence]]" in text
    assert not re.search(r"^\[(claims|decoding|thinking|tokens)\]", text, re.MULTILINE)
    assert parameters(find_profile(str(files("openai", 1))), "rejected")[0] == {"temperature": 1.1}


def test_what_the_official_endpoint_itself_fails_is_listed_and_held_against_nobody(files: Any, kvv_cli: Any) -> None:
    """The openai variant takes what K3 must refuse: that fails under the profile of K3, and cannot under its own."""
    file = files("openai")
    with MockServer(MockConfig(model="kimi-k3", variant="openai")) as server:
        ask = ("check", "params", "--case", "params/rejected/*", "--base-url", server.base_url, "--model", "kimi-k3")
        plain = kvv_cli(*ask, "--profile", "kimi-k3", "--json")
        spared = kvv_cli(*ask, "--profile", str(file), "--json")
    assert plain.code == 1
    assert spared.code == 0, spared.out
    fails = {one.id for one in find_profile(str(file)).calibrated.fails}
    assert any(name.startswith("params/rejected/n-2") for name in fails)
    waivers = {entry["case"]: entry["owner"] for entry in json.loads(spared.out)["waivers"]}
    assert set(waivers) == fails
    assert set(waivers.values()) == {"kvv calibrate"}


def test_a_vendor_is_held_to_what_a_person_signed(files: Any, kvv_cli: Any, tmp_path: Path) -> None:
    """Official takes n 2; a vendor that refuses it (A11) is warned, and fails once somebody vouches for the file."""
    text = files("openai").read_text("utf-8")
    signed = text.replace('signed_by = ""', f'signed_by = "A. Person"\nsigned_on = {FIRST.date()}')
    (tmp_path / "unsigned.toml").write_text(text)
    (tmp_path / "signed.toml").write_text(signed.replace("2027-01-29", "2999-01-01"))
    (tmp_path / "expired.toml").write_text(signed.replace("2027-01-29", "2020-01-01"))
    codes = {}
    with MockServer(MockConfig(model="kimi-k3", variant="openai", faults=("A11",))) as server:
        ask = ("check", "params", "--case", "params/accepted/*", "--base-url", server.base_url, "--model", "kimi-k3")
        for name in ("unsigned", "signed", "expired"):
            codes[name] = kvv_cli(*ask, "--profile", str(tmp_path / f"{name}.toml"), "-q").code
    assert codes == {"unsigned": 0, "signed": 1, "expired": 0}


def test_no_key_and_no_password_of_an_address_reach_the_file(files: Any) -> None:
    assert KEY not in files("openai").read_text("utf-8")
    assert KEY not in files("kimi-k3").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--base-url: names the official endpoint"),
        (["--base-url", "http://127.0.0.1:9/v1"], "--model: is needed"),
        (["--merge", "nothing.toml"], "--merge: 'nothing.toml' is no file"),
        (["--merge", "own.toml"], "own.toml is no file of kvv calibrate"),
        (["--merge", "own.toml", "--profile", "kimi-k3"], "--merge: the file says which profile"),
        (["aime2025", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"], "contract suites alone"),
        (["--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--to", "own.toml"], "own.toml exists"),
        (
            ["--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--to", "no/such.toml"],
            "no file that can be written",
        ),
        (["--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--profile", "own.toml"], "is no known profile"),
    ],
)
def test_wrong_options_are_one_line_before_anything_is_asked(words: list[str], says: str, kvv_cli: Any) -> None:
    Path("own.toml").write_text('title = "x"\nsource = "https://example.com"\n')
    ran = kvv_cli("calibrate", *words)
    assert ran.code == 2
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert Path("own.toml").read_text() == 'title = "x"\nsource = "https://example.com"\n'


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--base-url", "http://127.0.0.1:9/v1", "--model", "other"], "measured the model 'kimi-k3', not 'other'"),
        (["--base-url", "http://127.0.0.1:9/v1", "--model", "kimi-k3"], "measure another endpoint into another file"),
    ],
)
def test_measurements_of_two_endpoints_are_never_joined(words: list[str], says: str, files: Any, kvv_cli: Any) -> None:
    file = files("openai", 1)
    before = file.read_bytes()
    ran = kvv_cli("calibrate", "--merge", str(file), *words)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert says in ran.err
    assert file.read_bytes() == before


def test_a_used_up_budget_and_a_silent_endpoint_write_no_file(kvv_cli: Any, tmp_path: Path) -> None:
    to, out = ("--to", str(tmp_path / "m.toml")), ("--out", str(tmp_path / "out"))
    with MockServer(MockConfig(model="m", variant="openai")) as server:
        asked = ("params", *CASES, "--base-url", server.base_url, "--model", "m", "--max-requests", "5")
        assert kvv_cli("calibrate", *asked, *to, *out).code == 5
    silent = kvv_cli("calibrate", "params", *CASES, "--base-url", "http://127.0.0.1:9/v1", "--model", "m", *to, *out)
    assert silent.code == 3
    assert "nothing was written" in silent.err
    assert not (tmp_path / "m.toml").exists()


def test_the_suite_of_probes_is_no_suite_of_a_run(kvv_cli: Any) -> None:
    from kvv.cases.suite import is_inner, suite_ids

    assert is_inner("calibration")
    assert "calibration" not in suite_ids()
    assert "calibration" not in kvv_cli("list", "suites").out
