"""The shipped profiles: they load, names find them, and the switches they send are the public verifier's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kvv.cases.suite import Context, Settings, SuiteKind, load_suite, suite_ids
from kvv.core import Level, Surface
from kvv.profiles.profile import (
    Profile,
    ProfileError,
    another_model,
    find_profile,
    load_profile,
    pick_profile,
    profile_ids,
)

EVERY = [(name, surface) for name in profile_ids() for surface in Surface]
IDS = [f"{name}-{surface}" for name, surface in EVERY]


def test_every_model_of_the_contract_has_a_profile() -> None:
    assert set(profile_ids()) >= {
        "kimi-k3",
        "kimi-k2.6",
        "deepseek-v3.2",
        "qwen3",
        "glm-4.6",
        "minimax-m2",
        "gpt-oss",
        "openai",
    }


@pytest.mark.parametrize(("name", "surface"), EVERY, ids=IDS)
def test_a_profile_loads_on_every_surface_and_its_parts_fit_together(name: str, surface: Surface) -> None:
    profile = load_profile(name, surface)
    assert (profile.id, profile.surface) == (name, surface)
    assert all(source.startswith("https://") for source in (profile.source, *profile.sources))
    assert profile.checked is not None, "the day on which the sources were read"
    assert set(profile.suites) <= set(suite_ids())
    assert all(prefix == prefix.lower() for prefix in profile.match)
    for form in (profile.wire.chat_id, profile.wire.tool_id):
        re.compile(form or "")
    thinking = profile.thinking
    assert thinking.default_effort in (None, *thinking.efforts)
    assert thinking.fields
    assert not (thinking.mode == "none" and thinking.can_disable), "what cannot be switched cannot be switched off"
    assert profile.sampling_for("toolcall").max_tokens
    asked = [(set(entry), entry) for table in (profile.decoding.accepted, profile.decoding.rejected) for entry in table]
    assert all(fields & {"temperature", "top_p", "n", "presence_penalty", "frequency_penalty"} for fields, _ in asked)
    assert not [entry for entry in profile.decoding.accepted if entry in profile.decoding.rejected]


@pytest.mark.parametrize(("name", "surface"), EVERY, ids=IDS)
def test_every_contract_suite_makes_its_cases_for_every_profile_with_ids_of_their_own(
    name: str, surface: Surface
) -> None:
    context = Context(model="some-model", profile=load_profile(name, surface), settings=Settings())
    for suite_id in suite_ids():
        suite = load_suite(suite_id)
        if suite.kind is not SuiteKind.BENCHMARK:
            ids = [case.id for case in suite.cases(context)]
            assert len(ids) == len(set(ids))


GATED = ("kimi-k3", "kimi-k2.6", "kimi-k2.7-code")


@pytest.mark.parametrize("name", profile_ids())
def test_only_models_that_the_public_verifier_gates_must_refuse_parameters(name: str) -> None:
    """Second-hand facts about other models' APIs are should-level at most; a bare engine refuses nothing."""
    level = Level.MUST if name in GATED else Level.SHOULD
    assert load_profile(name).decoding.reject_level is level
    assert load_profile(name, Surface.ENGINE).decoding.reject_level is Level.SHOULD


# --- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("kimi-k3", "kimi-k3"),
        ("moonshotai/Kimi-K3", "kimi-k3"),
        ("openrouter/moonshotai/kimi-k3:free", "kimi-k3"),
        ("KIMI-K3-0711-preview", "kimi-k3"),
        ("accounts/fireworks/models/kimi-k2p6", "kimi-k2.6"),
        ("moonshotai/Kimi-K2.6", "kimi-k2.6"),
        ("moonshotai/kimi-k2.5:nitro", "kimi-k2.6"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2-instruct"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2"),
        ("deepseek/deepseek-v3.2-20251201", "deepseek-v3.2"),
        ("deepseek-chat", "openai"),
        ("Qwen/Qwen3-32B-FP8", "qwen3"),
        ("Qwen/Qwen3-235B-A22B", "qwen3"),
        ("qwen/qwen3-235b-a22b:free", "qwen3"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-instruct"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3-thinking"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder"),
        ("zai-org/GLM-4.6-FP8", "glm-4.6"),
        ("z-ai/glm-4.6:exacto", "glm-4.6"),
        ("zai-org/GLM-4.6V", "openai"),
        ("MiniMaxAI/MiniMax-M2", "minimax-m2"),
        ("minimax/minimax-m2.1", "minimax-m2"),
        ("openai/gpt-oss-120b", "gpt-oss"),
        ("gpt-oss:20b", "gpt-oss"),
        (" gpt-oss-20b@v1 ", "gpt-oss"),
        ("my-finetune-of-kimi-k3", "openai"),
        ("", "openai"),
    ],
)
def test_a_models_name_finds_its_profile_whatever_the_vendor_writes_around_it(model: str, expected: str) -> None:
    assert pick_profile(model)[0] == expected


def test_an_unknown_name_is_said_to_be_unknown() -> None:
    name, reason = pick_profile("acme/super-model-9")
    assert name == "openai"
    assert "acme/super-model-9" in reason
    assert "only what the OpenAI API promises" in reason
    assert "'kimi-k3'" in pick_profile("moonshotai/Kimi-K3")[1]


# --- the switches ------------------------------------------------------------------------------------

EFFORTS = ("low", "high", "max")


@pytest.mark.parametrize("effort", EFFORTS)
def test_thinking_with_an_effort_is_sent_as_the_public_verifier_sends_it(effort: str) -> None:
    """Its README, table `Thinking Mode Parameters`."""
    profile = load_profile("kimi-k3")
    assert profile.thinking_body(on=True, effort=effort, mode="kimi") == {
        "thinking": {"type": "enabled", "keep": "all", "effort": effort}
    }
    kwargs = {"thinking": True, "preserve_thinking": True, "thinking_effort": effort}
    assert profile.thinking_body(on=True, effort=effort, mode="opensource") == {"chat_template_kwargs": kwargs}
    assert profile.thinking_body(on=True, effort=effort, mode="none") == {}


@pytest.mark.parametrize("name", ["kimi-k3", "kimi-k2.6"])
@pytest.mark.parametrize("effort", [None, *EFFORTS])
def test_thinking_off_is_sent_without_an_effort(name: str, effort: str | None) -> None:
    profile = load_profile(name)
    assert profile.thinking_body(on=False, effort=effort, mode="kimi") == {"thinking": {"type": "disabled"}}
    assert profile.thinking_body(on=False, effort=effort, mode="opensource") == {
        "chat_template_kwargs": {"thinking": False}
    }


def test_without_an_effort_only_the_switch_is_sent() -> None:
    """The table has keep beside an effort only; all is the default of both (contract 2.2)."""
    assert load_profile("kimi-k3").thinking_body(on=True, effort=None) == {"thinking": {"type": "enabled"}}
    assert load_profile("kimi-k3", Surface.ENGINE).thinking_body(on=True, effort=None) == {
        "chat_template_kwargs": {"thinking": True}
    }


def test_a_model_without_efforts_is_sent_the_bare_switch() -> None:
    profile = load_profile("kimi-k2.6")
    assert profile.thinking_body(on=True, effort=None) == {"thinking": {"type": "enabled"}}
    assert load_profile("kimi-k2.6", Surface.ENGINE).thinking_body(on=True, effort=None) == {
        "chat_template_kwargs": {"thinking": True}
    }


@pytest.mark.parametrize(
    ("name", "surface", "on", "body"),
    [
        ("kimi-k3", Surface.VENDOR, None, {}),
        ("openai", Surface.VENDOR, True, {}),
        ("deepseek-v3.2", Surface.VENDOR, True, {"thinking": {"type": "enabled"}}),
        ("deepseek-v3.2", Surface.ENGINE, False, {"chat_template_kwargs": {"thinking": False}}),
        ("qwen3", Surface.VENDOR, False, {"chat_template_kwargs": {"enable_thinking": False}}),
        ("qwen3", Surface.ENGINE, True, {"chat_template_kwargs": {"enable_thinking": True}}),
        ("glm-4.6", Surface.VENDOR, False, {"thinking": {"type": "disabled"}}),
        ("glm-4.6", Surface.ENGINE, True, {"chat_template_kwargs": {"enable_thinking": True}}),
        ("minimax-m2", Surface.VENDOR, True, {}),
        ("qwen3", Surface.OFFICIAL, False, {"enable_thinking": False}),
        ("deepseek-v4", Surface.VENDOR, False, {"thinking": {"type": "disabled"}}),
        ("kimi-k2-thinking", Surface.VENDOR, True, {}),
        ("gpt-oss", Surface.VENDOR, True, {}),
    ],
)
def test_each_model_is_switched_in_its_own_way(
    name: str, surface: Surface, on: bool | None, body: dict[str, Any]
) -> None:
    assert load_profile(name, surface).thinking_body(on=on, effort=None) == body


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("deepseek-v4", {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        ("gpt-oss", {"reasoning_effort": "high"}),
    ],
)
def test_an_effort_has_the_field_that_the_models_api_documents(name: str, body: dict[str, Any]) -> None:
    assert load_profile(name).thinking_body(on=True, effort="high") == body


def test_thoughts_inside_the_content_are_no_leak_where_the_model_thinks_inline() -> None:
    inline = [name for name in profile_ids() if load_profile(name).thinking.inline]
    assert inline == ["minimax-m2", "minimax-m3"]


def test_markers_are_texts_that_no_answer_holds_by_accident() -> None:
    def markers(profile: Profile) -> tuple[str, ...]:
        return (*profile.markers.special, *profile.markers.tools, *profile.markers.think)

    for name in profile_ids():
        assert all(len(marker) >= 4 and not marker.isalnum() for marker in markers(load_profile(name)))


# --- files of the user's own -------------------------------------------------------------------------

OWN = """
title = "Own"
source = "https://example.com"
[thinking]
supported = true
mode = "dial"
efforts = ["brief", "deep"]
[thinking.modes.dial]
on = { r = { dial = 1 } }
off = { r = { dial = 0 } }
effort.brief = { r = { budget = 512 } }
effort."*" = { r = [{ level = "@effort" }, "@effort"] }
[surface.engine]
thinking = { mode = "none" }
"""


def test_a_profile_file_says_in_any_json_how_thinking_is_switched(tmp_path: Path) -> None:
    (tmp_path / "Own Model.toml").write_text(OWN)
    profile = find_profile(str(tmp_path / "Own Model.toml"))
    assert (profile.id, profile.thinking.mode_names) == ("own-model", ("none", "dial"))
    bodies = [profile.thinking_body(on=True, effort=effort) for effort in (None, "brief", "deep")]
    assert bodies == [{"r": {"dial": 1}}, {"r": {"budget": 512}}, {"r": [{"level": "deep"}, "deep"]}]
    assert profile.thinking_body(on=False, effort="deep") == {"r": {"dial": 0}}
    assert profile.thinking_body(on=None, effort="deep") == {}
    engine = find_profile(str(tmp_path / "Own Model.toml"), Surface.ENGINE)
    assert engine.thinking_body(on=True, effort="deep") == {}
    with pytest.raises(ProfileError, match="no think mode 'kimi'"):
        profile.thinking_body(on=True, effort=None, mode="kimi")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title = ", "own.toml: "),
        ('title = "Own"', "own.toml: source: Field required"),
        (OWN.replace('mode = "dial"', 'mode = "switch"'), "own.toml: thinking: mode 'switch' is not among the modes"),
        (OWN.replace("efforts =", 'default_effort = "max"\nefforts ='), "own.toml: thinking: default_effort 'max'"),
        (OWN + "[surface.moon]", "own.toml: surface: unknown surface 'moon'"),
        (OWN + "[surfaces]", "own.toml: surfaces: Extra inputs"),
        ("surface = 3\n" + OWN.partition("[surface")[0], "own.toml: surface: must hold tables"),
    ],
)
def test_a_broken_profile_file_is_one_line_that_names_the_key(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(ProfileError) as error:
        find_profile(str(tmp_path / "own.toml"))
    assert str(error.value).startswith(words)
    assert "\n" not in str(error.value)


def test_a_profile_that_is_neither_known_nor_a_file_or_takes_a_known_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="is no file and no profile; known: deepseek"):
        find_profile("kimi-k9")
    (tmp_path / "kimi-k3.toml").write_text(OWN)
    with pytest.raises(ProfileError, match="rename the file"):
        find_profile(str(tmp_path / "kimi-k3.toml"))


def test_a_reference_of_the_same_model_name_is_one_for_a_profile_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    own = find_profile(str(tmp_path / "own.toml"))
    assert another_model("kimi-k3", "kimi-k3", own) == ""
    assert another_model("kimi-k2.6", "kimi-k3", own) != ""
    assert another_model("kimi-k3", "kimi-k3", load_profile("qwen3")) != ""
    assert another_model("some-name", "kimi-k3", load_profile("kimi-k3")) == ""
