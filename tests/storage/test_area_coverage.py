"""What the shipped profiles promise is asked enough of, so that a correct endpoint can keep every area."""

from __future__ import annotations

from collections import defaultdict

import pytest

from kvv.cases.contract import ContractSuite
from kvv.cases.suite import Context, Settings, built_in, load_suite
from kvv.core import Surface
from kvv.decision.coverage import CoverageTally
from kvv.profiles.policy import load_policy, policy_ids
from kvv.profiles.profile import load_profile, shipped_profiles
from kvv.storage.snapshot import unpromised_areas

SUITES = [suite for name in built_in() if isinstance(suite := load_suite(name), ContractSuite)]


@pytest.mark.parametrize("name", shipped_profiles())
def test_no_area_that_a_profile_promises_lies_below_a_shipped_policys_minimum(name: str) -> None:
    profile = load_profile(name, Surface.VENDOR)
    context = Context(model="m", profile=profile, settings=Settings())
    areas: defaultdict[str, CoverageTally] = defaultdict(CoverageTally)
    for suite in SUITES:
        for case in suite.cases(context):
            areas[case.area].add(skipped=case.inputs["skip"], concluded=not case.inputs["skip"])
    promised = areas.keys() - unpromised_areas(profile)
    assert {"decoding", "streaming", "usage"} <= promised
    for policy in map(load_policy, policy_ids()):
        low = [area for area in promised if not areas[area].against(policy.coverage.of(area)).enough]
        assert not low, policy.name
