"""Who counts as another upstream behind one name, and who does not."""

from __future__ import annotations

import pytest

from kvv.core import Upstream
from kvv.decision.upstreams import AnsweredBy, count_providers, find_mixed, fingerprints


def by(suite: str, count: int = 10, **upstream: str) -> AnsweredBy:
    return AnsweredBy(suite=suite, upstream=Upstream(**upstream), count=count)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            [by("b", provider="A", model="k"), by("b", 3, provider="B", model="k")],
            "2 upstreams answered behind one name (A 10, B 3)",
        ),
        ([by("b", model="k"), by("b", 2, model="org/k")], "the answers name 2 models behind one name (k 10, org/k 2)"),
        (
            [by("b", provider="A", model="k"), by("b", 4, provider="A", model="k-fp4")],
            "the answers name 2 models behind one name (k 10, k-fp4 4)",
        ),
    ],
)
def test_another_provider_or_another_returned_model_is_another_upstream(found: list[AnsweredBy], words: str) -> None:
    assert find_mixed(found, ["b"]) == {"b": words}


@pytest.mark.parametrize(
    "found",
    [
        [by("b", model="k")],
        # a replica each, or a deploy: the same weights
        [by("b", model="k", system_fingerprint="fp_1"), by("b", model="k", system_fingerprint="fp_2")],
        # silence is no upstream
        [by("b", provider="A", model="k"), by("b", model="k")],
        [by("b", provider="DeepInfra", model="K"), by("b", provider="deepinfra ", model="k")],
        # suites may be asked in different ways; contract cases ask for another model on purpose
        [by("b", model="k"), by("b2", model="k-batch")],
        [by("b", provider="A", model="k"), by("params", provider="B", model="other")],
        [by("b", provider="A", model="k"), by("", provider="B", model="k")],
        [],
    ],
)
def test_what_one_correct_server_may_do_is_no_mix(found: list[AnsweredBy]) -> None:
    assert find_mixed(found, ["b", "b2"]) == {}


def test_providers_that_take_turns_by_suite_mix_the_whole_run() -> None:
    assert set(find_mixed([by("b", provider="A"), by("b2", provider="B")], ["b", "b2"])) == {"b", "b2"}


def test_a_name_of_any_length_is_cut_and_many_are_not_all_listed() -> None:
    words = find_mixed([by("b", provider=f"{n}" * 500) for n in range(9)], ["b"])["b"]
    assert words.startswith("9 upstreams")
    assert len(words) < 400
    assert words.endswith(", ...)")


def test_names_and_fingerprints_are_counted_for_the_report() -> None:
    found = [
        by("b", 5, provider="A", system_fingerprint="x"),
        by("p", 2, provider="B", system_fingerprint="x"),
        by("p", 1, system_fingerprint="y"),
    ]
    assert count_providers(found) == {"A": 5, "B": 2}
    assert count_providers([by("b", 5, model="k"), by("p", 2, model="k")]) == {"unnamed": 7}
    assert count_providers([]) == {}
    assert fingerprints(found) == {"x": 7, "y": 1}
