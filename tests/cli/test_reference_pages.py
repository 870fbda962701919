"""The reference pages that docs/hooks/reference.py makes hold what the code has."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import pytest

from kvv.core import Level
from kvv.profiles.policy import Waiver, policy_ids
from kvv.profiles.profile import profile_ids
from kvv.protocol.rules import RULES

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_pages", ROOT / "docs/hooks/reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_rule_policy_profile_and_verb_has_its_place(reference: ModuleType) -> None:
    for names, page in (
        (RULES, reference.rules_page()),
        (policy_ids(), reference.policy_page()),
        (profile_ids(), reference.profile_page()),
    ):
        assert [name for name in names if f"| `{name}` |" not in page] == []
    assert "| `max_cost` | number | `absent` |" in reference.configuration_page()
    shown = reference.command_line()
    assert "## kvv baseline accept\n" in shown
    assert "| 3 | inconclusive |" in shown


def test_a_table_of_a_policy_lists_its_keys_and_what_is_required(reference: ModuleType) -> None:
    section = reference.policy_page().split("`[waiver]`")[1].split("\n## ")[0]
    assert [key for key in Waiver.model_fields if f"| `{key}` |" not in section] == []
    assert "| `expires` | date | required |" in section
    assert "FieldInfo" not in reference.profile_page() + reference.case_file_page()


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (Mapping[str, tuple[str, ...]], "table of list of text"),
        (Literal["on", "off"] | None, "one of on, off"),
        (Level, "one of must, should, may"),
        (Waiver, "table"),
        (Annotated[float, "bounded"], "number"),
    ],
)
def test_types_have_the_names_that_a_toml_file_has(reference: ModuleType, annotation: Any, shown: str) -> None:
    assert reference.toml_type(annotation) == shown


def test_defaults_are_written_as_in_a_toml_file(reference: ModuleType) -> None:
    shown = [reference.toml_value(value) for value in (False, None, (), ("a",), {}, Level.MUST)]
    assert shown == ["false", "absent", "[]", '["a"]', "{}", '"must"']


def test_a_cell_cannot_break_its_table_or_hold_markup(reference: ModuleType) -> None:
    assert reference.cell("a|b\n<img>") == "a\\|b &lt;img>"
    assert reference.cell("RFC 1: https://a.example/x; more") == "RFC 1 [a.example](https://a.example/x); more"


def test_the_report_page_has_fields_of_nested_tables(reference: ModuleType) -> None:
    page = reference.report_page()
    assert "| `verdict` | pass, fail, inconclusive, error | yes |" in page
    assert "| `gates[].reason` |" in page


def test_reason_codes_are_found_in_the_source_and_none_is_explained_that_is_gone(reference: ModuleType) -> None:
    found = set(reference.reason_codes())
    assert set(reference.meanings()) <= found
    seen = set()
    for path in (ROOT / "tests/golden/verdicts").glob("*.json"):
        for name, value in json.loads(path.read_text("utf-8")).items():
            if name.endswith("/reason") and isinstance(value, str) and (match := reference.PREFIX.fullmatch(value)):
                seen.add(match[1])
    assert {"contract-broken", "tests-fail"} <= seen
    assert seen <= found
