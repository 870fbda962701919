from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.decision import forecast
from kvv.profiles.policy import PolicyError, load_policy, parse_policy, parse_waivers, policy_ids
from kvv.stats import Design, binary_design, detectable


def test_the_shipped_policies_ship_and_parse() -> None:
    assert policy_ids() == ["kvv-parity", "load", "moonshot-stream", "nightly", "release", "smoke"]
    for name in policy_ids():
        assert load_policy(name).name == name


def test_the_default_policy_requires_no_suite() -> None:
    assert load_policy("smoke").required.suites == ()


# n, variance of one sample of one question, from the correlations that the comments in release.toml use
DESIGNS = {
    "ocrbench": binary_design(1000, 0.89, 0.91),
    "mmmu_pro": binary_design(1730, 0.82, 0.8),
    "swebench": binary_design(500, 0.65, 0.8),
    "beam": Design(n=700, sigma2=0.4**2 * 0.2),
    "aime2025": Design(n=30, sigma2=0.0094**2 * 30 * 32, k_vendor=32, k_reference=32),
}


@pytest.mark.parametrize("suite", DESIGNS)
def test_no_release_margin_is_smaller_than_what_an_identical_vendor_clears_in_983_of_1000_runs(suite: str) -> None:
    policy = load_policy("release")
    entry = policy.benchmark_for(suite, "any", primary=True)
    assert entry is not None
    assert entry.margin >= detectable(DESIGNS[suite].se, alpha=policy.alpha, power=0.983)


@pytest.mark.parametrize(("suite", "rho"), [("ocrbench", 0.9), ("mmmu_pro", 0.9), ("swebench", 0.9), ("beam", 0.9)])
def test_no_parity_margin_is_smaller_than_the_table_of_detectable_differences(suite: str, rho: float) -> None:
    sizes = {"ocrbench": (1000, 0.89), "mmmu_pro": (1730, 0.82), "swebench": (113, 0.675), "beam": (700, 0.31)}
    policy = load_policy("kvv-parity")
    entry = policy.benchmark_for(suite, "any", primary=True)
    assert entry is not None
    assert entry.margin >= detectable(binary_design(*sizes[suite], rho).se, alpha=policy.alpha)


def test_nightly_alpha_keeps_false_alarms_over_all_gates_to_one_in_a_hundred_nights() -> None:
    policy = load_policy("nightly")
    # the gates beside official runs hold to a margin that an unchanged endpoint lies far from: forecast below
    shown = [entry for entry in policy.benchmark if entry.method not in ("agreement", "refusals")]
    assert (len(policy.benchmark), len(shown)) == (10, 7)
    quiet = 1.0
    for entry in shown:
        quiet *= 1 - (entry.alpha or policy.alpha)
    assert 1 - quiet <= 0.01
    beside = policy.model_copy(update={"benchmark": tuple(e for e in policy.benchmark if e not in shown)})
    found = forecast(beside, {"toolcall": binary_design(500, 0.5, 0.5)})
    assert [gate.metric for gate in found.gates] == ["call_recall", "call_match"]
    assert found.false_alarms < 1e-3
    assert all(gate.pass_chance > 0.97 for gate in found.gates)


def test_the_hash_is_of_the_meaning_not_of_the_text() -> None:
    one = parse_policy('name = "a"\nalpha = 0.05\n[[benchmark]]\nsuite = "x"\nmargin = 0.02\n', "a.toml")
    same = parse_policy('# why\nname="a"\n[[benchmark]]\nmargin=0.02\nsuite="x"\n', "b.toml")
    other = parse_policy('name = "a"\n[[benchmark]]\nsuite = "x"\nmargin = 0.03\n', "a.toml")
    assert one.sha256 == same.sha256 != other.sha256
    assert len(one.sha256) == 64


def test_waivers_change_the_hash() -> None:
    policy = load_policy("smoke")
    text = (
        '[[waiver]]\ncase = "params/*"\nreason = "by design"\nowner = "me"\nissue = "https://example.org/7"\nexpires ='
        " 2026-12-31\n"
    )
    waivers = parse_waivers(text, "waivers.toml")
    assert waivers[0].expires == date(2026, 12, 31)
    assert policy.with_waivers(waivers).sha256 != policy.sha256


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha = 2", "mine.toml: alpha: Input should be less than 0.5"),
        (
            '[[benchmark]]\nsuite="x"\nmargin=0.1\nmargim=1',
            "mine.toml: benchmark[0].margim: Extra inputs are not permitted",
        ),
        ('[[benchmark]]\nsuite="x"', "mine.toml: benchmark[0]: a parity gate needs margin > 0"),
        (
            '[[benchmark]]\nsuite="x"\nmode="regression"',
            "mine.toml: benchmark[0]: a regression gate needs detect > 0, the loss it must be able to see",
        ),
        (
            '[[benchmark]]\nsuite="x"\nmargin=0.1\n[[benchmark]]\nsuite="x"\nmargin=0.2',
            "mine.toml: policy: benchmark 'x/' stands there twice",
        ),
        ('[required]\nareas=["taste"]', "mine.toml: required.areas[0]: Input should be"),
        ("alpha = ", "mine.toml: Invalid value"),
        ('[[waiver]]\ncase="a"\nreason="b"\nowner="c"', "mine.toml: waiver[0].expires: Field required"),
    ],
)
def test_a_wrong_policy_gives_one_line_that_names_file_and_key(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, "mine.toml")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=200))
def test_any_text_parses_or_gives_one_printable_line(text: str) -> None:
    said = ""
    try:
        parse_policy(text, "x.toml")
    except PolicyError as error:
        said = str(error)
    assert said.isprintable()


def test_an_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(PolicyError, match="known: kvv-parity"):
        load_policy("strictest")


def test_a_named_metric_goes_before_the_suites_primary_entry() -> None:
    policy = parse_policy(
        '[[benchmark]]\nsuite="a"\nmargin=0.1\n[[benchmark]]\nsuite="a"\nmetric="m"\nmargin=0.2\n', "My Policy.toml"
    )
    assert policy.name == "my-policy"
    margins = [
        e.margin if (e := policy.benchmark_for("a", metric, primary=primary)) else None
        for metric, primary in (("m", False), ("n", True), ("n", False))
    ]
    assert margins == [0.2, 0.1, None]
