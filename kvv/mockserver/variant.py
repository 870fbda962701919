"""What the variants promise and how their answers look.

``kimi-k3`` keeps the published contract of Kimi K3 in full.
``openai`` promises what the OpenAI API does. ``vllm`` looks like a stock vLLM
serving K3: any sampling within range, thinking through chat_template_kwargs, three more prompt tokens.
"""

from dataclasses import dataclass
from typing import Literal

IdStyle = Literal["kimi", "openai", "vllm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVariant:
    """``fixed_sampling``: only the model's own values are accepted. ``pending``: generation-stub tokens that are
    counted.
    """

    name: str
    ids: IdStyle
    fixed_sampling: bool
    max_choices: int
    max_stops: int
    stop_bytes: int | None
    thinking_default: bool
    hosted_effort: bool
    reasoning_field: str
    pending: int
    dynamic_tools: bool
    strict_schemas: bool
    boundary: bool
    usage_on_choice: bool
    accounting_headers: bool
    null_content: bool
    null_usage: bool
    named_finish: str
    extra: tuple[tuple[str, object], ...] = ()


VARIANTS: dict[str, ModelVariant] = {
    "kimi-k3": ModelVariant(
        name="kimi-k3",
        ids="kimi",
        fixed_sampling=True,
        max_choices=1,
        max_stops=5,
        stop_bytes=32,
        thinking_default=True,
        hosted_effort=True,
        reasoning_field="reasoning_content",
        pending=0,
        dynamic_tools=True,
        strict_schemas=True,
        boundary=True,
        usage_on_choice=True,
        accounting_headers=True,
        null_content=False,
        null_usage=False,
        named_finish="tool_calls",
    ),
    "openai": ModelVariant(
        name="openai",
        ids="openai",
        fixed_sampling=False,
        max_choices=4,
        max_stops=4,
        stop_bytes=None,
        thinking_default=False,
        hosted_effort=False,
        reasoning_field="reasoning_content",
        pending=0,
        dynamic_tools=False,
        strict_schemas=False,
        boundary=False,
        usage_on_choice=False,
        accounting_headers=False,
        null_content=True,
        null_usage=True,
        named_finish="stop",
        extra=(("system_fingerprint", "fp_reference"), ("service_tier", "default")),
    ),
    "vllm": ModelVariant(
        name="vllm",
        ids="vllm",
        fixed_sampling=False,
        max_choices=64,
        max_stops=64,
        stop_bytes=None,
        thinking_default=True,
        hosted_effort=False,
        reasoning_field="reasoning",
        pending=3,
        dynamic_tools=True,
        strict_schemas=False,
        boundary=False,
        usage_on_choice=False,
        accounting_headers=False,
        null_content=True,
        null_usage=False,
        named_finish="stop",
    ),
}
