"""What the models' public API documents promise is claimed and asked; what nobody promises is not."""

from __future__ import annotations

import pytest

from kvv.cases.case_file import load_case_file
from kvv.cases.contract import names_of
from kvv.cases.suite import Context, Settings, load_suite
from kvv.core import Level, Surface
from kvv.profiles.profile import load_profile, profile_ids

SUITES = ("tools", "tool_choice", "response_format")
#: read on 1 December 2026: the API documents that the profiles name. Tools without more: tool_choice auto.
DEEPSEEK = {"tools", "required", "named", "json_object"}
GLM = {"tools", "json_object"}
QWEN = {"tools", "named", "parallel", "json_object"}
KIMI_2 = {"tools", "parallel", "json_object", "json_schema", "contract:moonshot"}
OPENAI = {"tools", "required", "named", "parallel", "json_object", "json_schema", "contract:openai"}
DOCUMENTED = {
    "kimi-k3": KIMI_2 | {"required", "contract:kimi-k3"},
    "kimi-k2.7-code": KIMI_2,
    "kimi-k2.6": KIMI_2,
    "kimi-k2-thinking": KIMI_2,
    "kimi-k2-instruct": KIMI_2,
    "deepseek-v4": DEEPSEEK,
    "deepseek-v3.2": DEEPSEEK,
    "deepseek-v3.1": DEEPSEEK,
    "deepseek-r1": {"tools", "json_object"},
    "glm-5": GLM,
    "glm-4.7": GLM,
    "glm-4.6": GLM,
    "glm-4.5": GLM,
    "qwen3": QWEN,
    "qwen3.5": QWEN,
    "qwen3-instruct": QWEN,
    "qwen3-coder": QWEN,
    "qwen3-vl-instruct": QWEN,
    "qwen3-thinking": {"tools", "parallel"},
    "qwen3-vl-thinking": {"tools", "parallel"},
    "gpt-oss": {"tools", "required", "named", "json_object", "json_schema"},
    "minimax-m2": {"tools"},
    "minimax-m3": {"tools"},
    "llama-3.3": {"tools", "required", "named", "json_object", "json_schema"},
    "llama-4": OPENAI - {"contract:openai"},
    "mistral": OPENAI - {"contract:openai"},
    "gemma-3": set(),
    "openai": OPENAI,
}
FEATURES = ("tools", "required", "named", "parallel", "json_object", "json_schema")


def test_every_profile_says_what_its_models_documents_promise_and_no_more() -> None:
    assert set(DOCUMENTED) == set(profile_ids())
    for name, documented in DOCUMENTED.items():
        claims = load_profile(name).claims
        assert {feature for feature in FEATURES if getattr(claims, feature)} == documented & set(FEATURES), name


def needs(suite: str, case_id: str) -> set[str]:
    """The features and contracts that the case file asks of a profile; schemas as arguments need tools."""
    made = load_suite(suite)
    file = load_case_file(suite, names_of(made.toolbox))
    spec = next((s for s in file.case if f"{case_id}/".startswith(f"{suite}/{s.id}/")), None)
    claims = {*file.claims, *(spec.claims if spec else ["tools"])}
    return {claim for claim in claims if claim in FEATURES or claim.startswith("contract:")}


@pytest.mark.parametrize("name", profile_ids())
def test_most_cases_of_a_documented_feature_are_asked(name: str) -> None:
    context = Context(model="m", profile=load_profile(name), settings=Settings(), tier="full")
    cases = [case for suite in SUITES for case in load_suite(suite).cases(context)]
    concerned = [case for case in cases if needs(case.suite, case.id) <= DOCUMENTED[name]]
    if name == "gemma-3":  # no tools and no formats, so that what is left is that text stays text
        assert {case.suite for case in concerned} == {"response_format"}
        return
    asked = [case for case in concerned if not case.inputs["skip"]]
    assert len(concerned) >= 200
    assert len(asked) >= 0.8 * len(concerned)
    assert all(case.inputs["skip"] for case in concerned if case not in asked), "why not, in words"


@pytest.mark.parametrize("name", ["glm-4.6", "kimi-k3"])
def test_what_becomes_of_results_is_asked_with_a_prepared_history_whatever_can_be_forced(name: str) -> None:
    context = Context(model="m", profile=load_profile(name), settings=Settings())
    cases = [c for c in load_suite("tools").cases(context) if c.id.startswith("tools/results-used/")]
    assert len(cases) == 4
    assert not any(case.inputs["skip"] for case in cases)
    assert all("tool_choice" not in case.inputs["body"] for case in cases)


def test_a_claim_at_second_hand_warns_and_one_of_the_owner_fails() -> None:
    def levels(name: str, surface: Surface = Surface.VENDOR) -> set[Level]:
        context = Context(model="m", profile=load_profile(name, surface), settings=Settings())
        cases = load_suite("tool_choice").cases(context)
        return {case.level for case in cases if case.id.startswith("tool_choice/required/fitting")}

    assert levels("gpt-oss") == {Level.SHOULD}
    assert levels("gpt-oss", Surface.ENGINE) == {Level.MUST}
    assert levels("openai") == {Level.MUST}


def test_what_holds_only_without_thinking_is_asked_so_and_never_while_the_model_thinks() -> None:
    context = Context(model="m", profile=load_profile("deepseek-v4"), settings=Settings())
    forced = [c for c in load_suite("tool_choice").cases(context) if c.id.startswith("tool_choice/required/")]
    assert forced
    assert all(case.inputs["body"]["thinking"] == {"type": "disabled"} for case in forced)
    kept = [c for c in load_suite("tool_choice").cases(context) if "/required-keeps-thinking" in c.id]
    assert all(case.inputs["skip"] for case in kept), "there is no thinking that it could keep"
    thinking = Context(model="m", profile=load_profile("deepseek-v4"), settings=Settings(thinking=True))
    skips = {c.inputs["skip"] for c in load_suite("tool_choice").cases(thinking) if "/required/" in c.id}
    assert skips == {"the profile deepseek-v4 claims required only while the model does not think"}
    asked = [c for c in load_suite("tools").cases(thinking) if c.id.startswith("tools/fixed/ascii")]
    assert {case.inputs["body"]["tool_choice"] for case in asked} == {"auto"}


#: marks of public templates that the profile of unknown models leaves out: HTML, code fences, or plain words
LEFT_OUT = {"[BOS]", "[EOS]", "<sop>", "<function=", "</function>", "<parameter=", "</parameter>"}
LEFT_OUT |= {"```tool_code", "```tool_call", "[INST]", "<|patch|>", "<end_of_image>"}
#: parts of K3's elements, each of which holds a special token
LEFT_OUT |= {f"{sign}{tag}" for sign in ("<|open|>", "<|close|>") for tag in ("tools", "call", "argument")}


def test_an_unknown_model_is_watched_for_the_marks_of_every_public_template() -> None:
    known = {
        marker
        for name in profile_ids()
        for marker in (*load_profile(name).markers.special, *load_profile(name).markers.tools)
    }
    unknown = load_profile("openai").markers
    watched = (*unknown.special, *unknown.tools)
    assert known - LEFT_OUT - {m for m in known if any(part in m for part in watched)} == set()


def test_mistral_s_history_has_ids_of_nine_letters_and_digits_that_still_fit_together() -> None:
    def ids(name: str) -> list[tuple[str, str]]:
        context = Context(model="m", profile=load_profile(name), settings=Settings())
        case = next(
            c for c in load_suite("tools").cases(context) if c.id.startswith("tools/results-in-history/reversed")
        )
        messages = case.inputs["body"]["messages"]
        made = [call["id"] for message in messages for call in message.get("tool_calls", ())]
        told = [message["tool_call_id"] for message in messages[-1]["@splice"]]
        return list(zip(made, reversed(told), strict=True))

    assert all(made == told and len(made) == 9 and made.isalnum() for made, told in ids("mistral"))
    assert ids("openai") == [("get_weather_0", "get_weather_0"), ("get_time_1", "get_time_1")]
