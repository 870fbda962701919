"""The thinking switches: the hosted form, the top-level effort, and the open-weights form."""

from typing import Any

from kvv.mockserver.config import JsonObject
from kvv.mockserver.errors import ApiError
from kvv.mockserver.validation.request import Effort
from kvv.mockserver.variant import ModelVariant

# Efforts that other APIs know are mapped to the nearest; any other name is ignored, as on the hosted API.
_EFFORTS: dict[str, Effort] = {
    "minimal": "low",
    "low": "low",
    "medium": "high",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}


def read_thinking(body: JsonObject, *, variant: ModelVariant) -> tuple[bool, Effort | None]:
    """Whether the model thinks, and how hard. ``thinking.effort`` wins over ``reasoning_effort``; switched off, effort
    is None.
    """
    switch = _object(body, "thinking")
    template = _object(body, "chat_template_kwargs")
    top_effort = _text(body, "reasoning_effort")
    kind = switch.get("type")
    if switch and kind not in ("enabled", "disabled", None):
        raise ApiError("thinking.type must be enabled or disabled", param="thinking")
    _text(switch, "keep", "thinking.keep")
    efforts = (
        _text(switch, "effort", "thinking.effort"),
        top_effort,
        _text(template, "thinking_effort"),
        _text(template, "reasoning_effort"),
    )
    named = next((effort for effort in efforts if effort is not None), None)
    thinking = variant.thinking_default
    if not variant.thinking_default and (named not in (None, "none") or kind == "enabled"):
        thinking = True
    for name in ("thinking", "enable_thinking"):
        flag = template.get(name)
        if flag is not None and not isinstance(flag, bool):
            raise ApiError(f"chat_template_kwargs.{name} must be a boolean", param="chat_template_kwargs")
        thinking = thinking if flag is None else flag
    if kind is not None:
        thinking = kind == "enabled"
    elif named == "none" and not variant.hosted_effort:
        thinking = False
    if not thinking:
        return False, None
    effort = next((_EFFORTS[entry] for entry in efforts if entry in _EFFORTS), None)
    return True, effort or ("max" if variant.hosted_effort else None)


def _object(body: JsonObject, name: str) -> JsonObject:
    value: Any = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiError(f"{name} must be an object", param=name)
    return value


def _text(body: JsonObject, name: str, label: str | None = None) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise ApiError(f"{label or name} must be a string", param=label or name)
    return value
