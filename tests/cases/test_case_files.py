"""What a case file may say, and how it becomes cases for a profile, a surface and a run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kvv.cases.case_file import CaseFileError
from kvv.cases.contract import ContractSuite
from kvv.cases.suite import Context, Settings, built_in, load_suite
from kvv.core import Level, Surface
from kvv.profiles.profile import load_profile, profile_ids

PLAIN = '[[case]]\nid = "x"\nrequirement = "r"\n'
CONTRACT = [name for name in built_in() if isinstance(load_suite(name), ContractSuite)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[case]\n", "lab.toml: "),
        (PLAIN + "colour = 1\n", r"case\.0\.colour"),
        (PLAIN + PLAIN, "two cases have the id 'x'"),
        (PLAIN + "checks = { no-such-check = 1 }\n", "case 'x': unknown check 'no-such-check'"),
        (PLAIN + "compare = { calls = 1 }\n", "unknown comparison 'calls'"),
        (PLAIN + 'claims = ["flying"]\n', "unknown claim 'flying'"),
        (PLAIN + 'body = { tools = ["@weather"] }\n', "nothing is called '@weather'"),
        (PLAIN + 'body = { user = { "@shout" = 1 } }\n', "unknown directive '@shout'"),
        (PLAIN + "variants = { a = {}, b = {} }\nexpect = 'refused'\n", "variants must all be answered"),
        (PLAIN + "at-least = 0.5\n", "a rate wants samples"),
        (PLAIN + 'each = [{ word = "x" }]\n', "an entry of each wants an id"),
        (PLAIN + 'rounds = [{ name = "a" }, { name = "a" }]\n', "the same name"),
        (
            PLAIN + 'level = "should"\nlevels = { "engine" = "must" }\n',
            "levels can only lower .* and engine would raise",
        ),
        (PLAIN + 'levels = { "*" = "should", "engine" = "may" }\n', "levels after '[*]' are never reached: engine"),
        (PLAIN + 'rule = "tools/no-such-rule"\n', "unknown rule 'tools/no-such-rule'"),
        (PLAIN + 'level = "should"\nrule = "stream/done"\n', "is a should .* and its rule stream/done a must"),
    ],
)
def test_a_file_that_breaks_the_form_is_refused_with_one_line(lab: Any, text: str, message: str) -> None:
    with pytest.raises(CaseFileError, match=message) as caught:
        lab.cases(text)
    assert "\n" not in str(caught.value).strip() or "Invalid" in str(caught.value)


def test_snippets_variables_and_reserved_names_are_put_in_and_schema_keywords_are_left_alone(lab: Any) -> None:
    text = """
[snippets]
inner = { type = "object", properties = { a = { "$ref" = "#/$defs/a" } } }
tool = { name = "@name", parameters = "@inner" }
[[case]]
id = "x"
requirement = "A tool {name} {id}"
each = [{ id = "one", name = "@@at" }, { id = "two", name = "plain", body = { seed = 1 } }]
body = { tools = ["@tool"], user = "@null", note = "not a @name" }
"""
    one, two = lab.cases(text)
    assert (one.id, one.requirement) == ("lab/x/one/whole", "A tool @@at one")
    assert one.inputs["body"]["tools"] == [
        {"name": "@at", "parameters": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}}
    ]
    assert (one.inputs["body"]["user"], one.inputs["body"]["note"]) == (None, "not a @name")
    assert two.inputs["body"]["seed"] == 1


def test_directives_stay_in_the_stored_case_and_are_replaced_when_it_is_sent(lab: Any) -> None:
    case = lab.only(
        PLAIN + 'prompt = "p"\nbody = { stop = [{ "@repeat" = ["ab", 3] }], tools = [{ "@tools" = ["t", 2] }] }\n'
    )
    assert case.inputs["body"]["stop"] == [{"@repeat": ["ab", 3]}]
    _, [request] = lab.drive(case, lambda request: lab.says())
    assert request.body["stop"] == ["ababab"]
    assert [tool["function"]["name"] for tool in request.body["tools"]] == ["t_0", "t_1"]


@pytest.mark.parametrize(
    ("profile", "surface", "level"),
    [
        ("kimi-k3", Surface.VENDOR, Level.MUST),
        ("kimi-k3", Surface.ENGINE, Level.MAY),
        ("openai", Surface.VENDOR, Level.SHOULD),
    ],
)
def test_levels_are_keyed_by_profile_and_surface(lab: Any, profile: str, surface: Surface, level: Level) -> None:
    text = (
        PLAIN + 'levels = { "contract:moonshot/engine" = "may", "contract:openai" = "should", "engine" = "should" }\n'
    )
    assert lab.only(text, profile=profile, surface=surface).level is level


def test_levels_only_lower(lab: Any) -> None:
    text = (
        PLAIN + 'each = [{ id = "a" }, { id = "b", level = "should" }]\n'
        'levels = { "contract:moonshot" = "must", "*" = "may" }\n'
    )
    assert [case.level for case in lab.cases(text)] == [Level.MUST, Level.SHOULD]
    assert [case.level for case in lab.cases(text, profile="openai")] == [Level.MAY, Level.MAY]


@pytest.mark.parametrize(
    ("fields", "options", "reason"),
    [
        (
            'claims = ["contract:moonshot"]',
            {"profile": "openai"},
            "does not claim contract:moonshot on the surface vendor",
        ),
        ('skip = { "contract:openai" = "because" }', {"profile": "openai"}, "because"),
        ('skip = { "not:error_object/vendor" = "because" }', {"profile": "openai"}, "because"),
        ('claims = ["tokenizer", "contract:moonshot"]', {"profile": "openai"}, "does not claim contract:moonshot"),
        ('surfaces = ["engine"]', {}, "not asked of the surface vendor"),
        ('claims = ["dynamic_tools"]', {"profile": "openai"}, "the profile openai does not claim dynamic_tools"),
        ('claims = ["other-model"]', {}, "no --other-model"),
        ('claims = ["tokenizer"]', {}, "no --tokenizer"),
        ('claims = ["schema:const"]', {}, "does not claim schema:const"),
        ('thinking = "off"', {}, "does not claim thinking-off"),
        ('claims = ["thinking"]', {"thinking": False}, "does not claim thinking"),
    ],
)
def test_what_is_not_promised_is_skipped_with_the_reason(
    lab: Any, fields: str, options: dict[str, Any], reason: str
) -> None:
    assert re.search(reason, lab.only(PLAIN + fields + "\n", **options).inputs["skip"])


@pytest.mark.parametrize(
    "fields",
    [
        'claims = ["contract:moonshot"]',
        'claims = ["dynamic_tools"]',
        'surfaces = ["vendor"]',
        'skip = { "contract:openai" = "because" }',
        'skip = { "not:error_object" = "because" }',
        'skip = { "contract:moonshot/engine" = "because" }',
    ],
)
def test_what_is_promised_is_asked(lab: Any, fields: str) -> None:
    assert lab.only(PLAIN + fields + "\n").inputs["skip"] == ""


def test_thinking_off_is_claimed_by_the_engine_surface_or_by_the_run(lab: Any) -> None:
    text = PLAIN + 'thinking = "off"\n'
    assert lab.only(text, surface=Surface.ENGINE).inputs["skip"] == ""
    case = lab.only(text, thinking=False)
    assert (case.inputs["skip"], case.inputs["body"]["thinking"]) == ("", {"type": "disabled"})


def test_contract_requests_think_as_little_as_they_can_unless_the_case_tests_effort(lab: Any) -> None:
    assert lab.only(PLAIN + 'thinking = "on"\n').inputs["body"]["thinking"]["effort"] == "low"
    assert lab.only(PLAIN + 'thinking = "on"\neffort = "max"\n').inputs["body"]["thinking"]["effort"] == "max"
    mixed = lab.only(
        PLAIN + 'thinking = "on"\nvariants = { low = {}, max = { effort = "max" }, off = { thinking = "off" } }\n'
    )
    sent = {name: request["body"]["thinking"] for name, request in mixed.inputs["rounds"][0]["requests"].items()}
    assert (sent["low"]["effort"], sent["max"]["effort"], sent["off"]) == ("low", "max", {"type": "disabled"})


def test_a_refusals_control_is_the_sibling_that_the_file_names(lab: Any) -> None:
    text = PLAIN + "expect = 'refused'\nbody = { tools = 5 }\ncontrol = { body = { tools = [] } }\n"
    assert lab.only(text).inputs["control"]["tools"] == []
    assert "tools" not in lab.only(PLAIN + "expect = 'refused'\nbody = { tools = 5 }\n").inputs["control"]


@pytest.mark.parametrize("suite", CONTRACT)
def test_every_shipped_case_file_reads_and_expands_for_every_profile(suite: str) -> None:
    for profile in profile_ids():
        for surface in Surface:
            context = Context(
                model="m", profile=load_profile(profile, surface), settings=Settings(), other_model="other"
            )
            cases = load_suite(suite).cases(context)
            ids = [case.id for case in cases]
            assert len(ids) == len(set(ids))
            assert all(case.source and case.requirement and "{" not in case.requirement for case in cases)


#: hosts of primary sources: the public verifier and validator of the model's maker, its checkpoint, the OpenAI API
PRIMARY = (
    "https://github.com/MoonshotAI/",
    "https://huggingface.co/moonshotai",
    "https://platform.openai.com/",
    "https://platform.kimi.com/",
)
#: musts that say only that the endpoint must not crash, found in an engine's own tracker
NEVER_CRASH = {"response_format/heavy-schema"}
#: what Moonshot's own fixtures ask of vendors, as one that passed them published
FIXTURES = {"dynamic_tools/content/null"}


@pytest.mark.parametrize("suite", CONTRACT)
def test_a_must_rests_on_a_primary_source(suite: str) -> None:
    context = Context(model="m", profile=load_profile("kimi-k3"), settings=Settings(), other_model="other")
    for case in load_suite(suite).cases(context):
        if case.level is Level.MUST and not any(case.id.startswith(name) for name in NEVER_CRASH | FIXTURES):
            assert case.source.startswith(PRIMARY), case.id
