"""What looks like a key in an address or a body, and names that do not."""

from __future__ import annotations

import json

import pytest

from kvv.planning.config import ConfigError, load_config
from kvv.protocol.redaction.key_forms import is_issued_key, keys_in_body, keys_in_path
from kvv.protocol.redaction.redactor import MARK, redact_url
from kvv.transport.endpoint import in_address

KEY = "sk-proj-9f2aB7xQ41zTk8"
TOKEN = "Qm9vR2ltbWVBY2Nlc3NUb2tlbjEyMw"


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        "hf_AbCdEfGh12345678",
        "AKIA1234567890ABCDEF",
        "Bearer abcdefgh12",
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0",
    ],
)
def test_keys_as_issuers_make_them_are_known(text: str) -> None:
    assert is_issued_key(text)


@pytest.mark.parametrize(
    "text",
    [
        "kimi-k3",
        "sk-learn",
        "sk-some-model-of-words",
        "hf_deployment_of_a_team",
        "moonshotai/Kimi-K2.5",
        "v1",
        "Bearer",
        "",
    ],
)
def test_names_are_no_keys(text: str) -> None:
    assert not is_issued_key(text)


def test_a_key_in_the_path_of_an_address_is_a_secret_and_an_identifier_is_none() -> None:
    assert keys_in_path(f"/gw/{KEY}/v1") == [KEY]
    assert keys_in_path(f"/gw/{TOKEN}/v1") == [TOKEN]
    names = (
        "/openai/deployments/kimi-k3-preview-2026/d41d8cd98f00b204e9800998ecf8427e/0b6f1c1e-8a51-4a53-9f3c-3d1f7a3f8a10"
    )
    assert keys_in_path(names) == []
    assert redact_url(f"https://host/gw/{TOKEN}/v1") == f"https://host/gw/{MARK}/v1"
    assert redact_url(f"https://host{names}") == f"https://host{names}"
    assert TOKEN in in_address(f"https://host/gw/{TOKEN}/v1")


@pytest.mark.parametrize("name", ["base_url", "judge_base_url", "reference_base_url"])
@pytest.mark.parametrize("address", [f"https://host/{KEY}/v1", f"https://host/v1?api_key={KEY}"])
def test_a_key_in_an_address_of_the_command_line_is_refused(name: str, address: str) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"^--{name.replace('_', '-')}: .*--{name.replace('base_url', 'api_key_env').replace('_', '-')} NAME",
    ) as error:
        load_config({name: address}, environ={})
    assert KEY not in str(error.value)


def test_the_environment_may_hold_an_address_with_a_key() -> None:
    """Nobody else can read it, and the redactor knows it; some gateways know no other way."""
    address = f"https://host/{KEY}/v1"
    assert load_config({}, environ={"KVV_BASE_URL": address}).base_url == address
    assert KEY in in_address(address)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"api_key": "a-secret-of-mine"}, "api_key"),
        ({"metadata": {"note": KEY}}, "metadata.note"),
        ({"tools": [{"headers": {"Authorization": "Bearer abcdefgh12"}}]}, "tools.0.headers.Authorization"),
        ({"provider": {"x-access-token": "0123456789"}}, "provider.x-access-token"),
    ],
)
def test_a_key_in_a_body_is_refused_by_its_fields_name(body: dict[str, object], named: str) -> None:
    assert list(keys_in_body(body)) == [named]
    with pytest.raises(ConfigError, match=r"^--extra-body: .*looks like a key.*--header-env") as error:
        load_config({"extra_body": json.dumps(body)}, environ={})
    assert "secret-of-mine" not in str(error.value)
    assert KEY not in str(error.value)


def test_fields_of_a_request_are_no_keys() -> None:
    body = {
        "top_k": 5,
        "max_tokens": 100,
        "prompt_cache_key": "k",
        "provider": {"order": ["a"]},
        "token": "x",
        "user": "sk-1",
    }
    assert list(keys_in_body(body)) == []
