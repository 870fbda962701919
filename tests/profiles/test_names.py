"""Which profile a model's name gets, as engines, hubs and gateways write it; never a wrong one."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.profiles.profile import load_profile, pick_profile, profile_ids

PATTERNS = [(name, pattern) for name in profile_ids() for pattern in load_profile(name).match]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("qwen3:8b", "qwen3"),
        ("Qwen3-8B-Q4_K_M.gguf", "qwen3"),
        ("unsloth/Qwen3-30B-A3B-GGUF:UD-Q4_K_XL", "qwen3"),
        ("RedHatAI/Qwen3-32B-quantized.w4a16", "qwen3"),
        ("mlx-community/Qwen3-14B-4bit", "qwen3"),
        ("qwen/qwen3-235b-a22b-2507", "qwen3-instruct"),
        ("qwen3:30b-a3b-thinking-2507-q8_0", "qwen3-thinking"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct:together", "qwen3-instruct"),
        ("qwen3-coder:480b-cloud", "qwen3-coder"),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct-FP8", "qwen3-vl-instruct"),
        ("Qwen/Qwen3.5-397B-A17B", "qwen3.5"),
        ("accounts/fireworks/models/kimi-k2p7-code", "kimi-k2.7-code"),
        ("kimi-k2.7-code-highspeed", "kimi-k2.7-code"),
        ("moonshot.kimi-k2-thinking", "kimi-k2-thinking"),
        ("kimi-k2-turbo-preview", "kimi-k2-instruct"),
        ("nvidia/Kimi-K2.5-NVFP4", "kimi-k2.6"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("deepseek-r1:671b", "deepseek-r1"),
        ("Pro/deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek-v3.1"),
        ("deepseek-v4-pro", "deepseek-v4"),
        ("zai-org/GLM-4.5-Air-FP8", "glm-4.5"),
        ("glm-4.7@zai", "glm-4.7"),
        ("zai-org/GLM-5.1", "glm-5"),
        ("MiniMax-M3", "minimax-m3"),
        ("openai.gpt-oss-120b-1:0", "gpt-oss"),
        ("@cf/openai/gpt-oss-20b", "gpt-oss"),
        ("meta-llama/Llama-3.3-70B-Instruct-Turbo", "llama-3.3"),
        ("llama3.3:70b", "llama-3.3"),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", "llama-4"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral"),
        ("google/gemma-3-27b-it", "gemma-3"),
        ("gemma3:27b-it-q4_K_M", "gemma-3"),
    ],
)
def test_names_of_hubs_engines_and_gateways_find_their_profile(model: str, expected: str) -> None:
    assert pick_profile(model)[0] == expected


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("kimi-k3.1-pro", "kimi-k3"),
        ("deepseek-ai/DeepSeek-V3.2-Speciale", "deepseek-v3.2"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1"),
        ("deepseek-r1:8b", "deepseek-r1"),
        ("qwen/qwen3-30b-a3b-2507", "qwen3"),
        ("qwen/qwen3-8b:thinking", "qwen3"),
        ("Qwen/Qwen3-8B-Base", "qwen3"),
        ("someone/Llama-3.3-70B-Instruct-abliterated", "llama-3.3"),
        ("glm-5.2", "glm-5"),
    ],
)
def test_a_name_that_may_be_another_model_is_only_asked_back(model: str, hint: str) -> None:
    name, reason = pick_profile(model)
    assert name == "openai"
    assert f"--profile {hint}" in reason


@pytest.mark.parametrize(
    "model", ["qwen3", "zai-org/GLM-4.6V", "glm-4.55", "kimi-k22.6", "gpt-4o", "x" * 10_000, "/:@#"]
)
def test_an_unknown_name_gets_no_model_s_profile(model: str) -> None:
    assert pick_profile(model)[0] == "openai"


WORDS = ["-FP8", "-AWQ", "-GPTQ-Int4", "-GGUF", "-w4a16", "-4bit", "-turbo", "-20251201", "-NVFP4"]
AROUND = [":free", ":nitro", "@provider", ":groq", ""]


@given(
    st.sampled_from(PATTERNS),
    st.sampled_from(["", "org/", "accounts/x/models/", "@cf/org/"]),
    st.lists(st.sampled_from(WORDS), max_size=2),
    st.sampled_from(AROUND),
    st.lists(st.booleans(), min_size=64, max_size=64),
)
def test_what_stands_around_a_name_and_its_case_never_change_its_profile(
    known: tuple[str, str], before: str, packed: list[str], behind: str, upper: list[bool]
) -> None:
    profile, pattern = known
    name = pattern.replace("#", "7") + "".join(packed)
    name = "".join(sign.upper() if up else sign for sign, up in zip(name, upper * 4, strict=False))
    assert pick_profile(before + name + behind)[0] == profile


@given(st.sampled_from(PATTERNS), st.text(string.ascii_lowercase, min_size=3, max_size=10))
def test_a_word_of_unknown_meaning_behind_a_name_leaves_it_to_the_user(known: tuple[str, str], word: str) -> None:
    picked = pick_profile(f"{known[1].replace('#', '7')}-not{word}")[0]
    assert picked == "openai"


@given(st.text(max_size=80))
def test_no_name_breaks_the_choice(model: str) -> None:
    assert pick_profile(model)[0] in profile_ids()
