"""The questions of a calibration: small requests, each bounded, and how an answer shows that it was obeyed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvv.cases.suite import Context
from kvv.core import Observation

#: values asked of every model beside those of its profile
PARAMETERS: tuple[Mapping[str, Any], ...] = (
    *({"temperature": value} for value in (0, 0.6, 1.0, 1.1, 2.0, 2.5, -0.1)),
    *({"top_p": value} for value in (0.8, 0.95, 1.0, 1.5, -0.1)),
    *({"n": value} for value in (1, 2)),
    *({"presence_penalty": value} for value in (0, 0.5, 2.5)),
    *({"frequency_penalty": value} for value in (0, 0.5, -2.5)),
)
STOPS = (1, 4, 5, 16, 17)
EFFORTS = ("minimal", "low", "medium", "high", "max")
#: more output than any window holds
BEYOND = 100_000_000
READY = "Reply with exactly: ready"
#: enough for a short thought and a call or a small object
ROOM = 2_048
#: for what is only taken or refused
LITTLE = 16

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FIXED = {
    "type": "object",
    "properties": {"code": {"type": "string", "enum": ["K-7741"]}},
    "required": ["code"],
    "additionalProperties": False,
}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": f"{name} of a city.", "parameters": CITY}}


WEATHER, TIME = tool("get_weather"), tool("get_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """``fields`` go over a plain request; ``switch`` sets thinking; ``reads`` names what an answer's facts are for."""

    fact: str
    fields: Mapping[str, Any]
    prompt: str = READY
    messages: tuple[Mapping[str, Any], ...] = ()
    max_tokens: int = LITTLE
    switch: bool | None = None
    mode: str | None = None
    effort: str | None = None
    witness: str = ""
    reads: str = ""
    parameter: bool = False


def probes(context: Context) -> Iterator[Probe]:
    """Every probe of one round, in a fixed order."""
    yield from _parameters(context)
    yield from _claims(context)
    yield from _thinking(context)
    for count in STOPS:
        yield Probe(fact=f"limits/stop/{count}", fields={"stop": [f"#{at}-stop#" for at in range(count)]})
    yield Probe(fact="limits/window", fields={"max_tokens": BEYOND}, reads="window")
    asked = "What is the weather in Beijing? Use the tool get_weather."
    for choice in ("auto", "none", "required"):
        body = {"tools": [WEATHER], "tool_choice": choice}
        yield Probe(fact=f"tokens/{choice}", fields=body, prompt=asked, max_tokens=ROOM, reads="tokens")
    as_json = "Return the weather of Beijing as JSON with the key city."
    yield Probe(fact="tokens/plain", fields={}, prompt=as_json, max_tokens=ROOM, reads="tokens")
    json_object = {"response_format": {"type": "json_object"}}
    yield Probe(fact="tokens/json-object", fields=json_object, prompt=as_json, max_tokens=ROOM, reads="tokens")
    yield Probe(fact="ids/chat-id", fields={}, reads="chat-id")
    body = {"tools": [WEATHER]}
    yield Probe(fact="ids/tool-id", fields=body, prompt=asked, max_tokens=ROOM, reads="tool-id")


def _parameters(context: Context) -> Iterator[Probe]:
    decoding = context.profile.decoding
    entries = [dict(entry) for entry in (*decoding.accepted, *decoding.either, *decoding.rejected)]
    entries += [dict(entry) for entry in PARAMETERS if dict(entry) not in entries and not _limited(entry, entries)]
    for entry in entries:
        thinking = str(entry.pop("thinking", ""))
        slug = "-".join(f"{name}-{value}" for name, value in sorted(entry.items())).replace("--", "-minus-")
        slug = re.sub(r"[^a-z0-9_.-]+", "-", slug.lower())[:80]
        yield Probe(
            fact=f"parameters/{slug}{f'/thinking-{thinking}' if thinking else ''}",
            fields=entry,
            switch=None if not thinking else thinking == "on",
            parameter=True,
        )


def _limited(entry: Mapping[str, Any], entries: list[dict[str, Any]]) -> bool:
    """Whether the profile lists the same values for one state of thinking alone."""
    return any({k: v for k, v in known.items() if k != "thinking"} == entry for known in entries)


def _claims(context: Context) -> Iterator[Probe]:
    schema = {"type": "json_schema", "json_schema": {"name": "record", "strict": True, "schema": FIXED}}
    both = 'Call get_weather for city "Paris" and get_time for city "Tokyo", both in this one answer.'
    declared = ({"role": "system", "content": "", "tools": [WEATHER]}, {"role": "user", "content": "Call get_weather."})
    named = {"type": "function", "function": {"name": "get_time"}}
    rows: list[tuple[str, dict[str, Any], str, str]] = [
        ("tools", {"tools": [WEATHER]}, "Call get_weather for Beijing now.", "call"),
        ("required", {"tools": [WEATHER], "tool_choice": "required"}, READY, "call"),
        ("named", {"tools": [WEATHER, TIME], "tool_choice": named}, "Call get_weather for Beijing.", "get_time"),
        ("parallel", {"tools": [WEATHER, TIME]}, both, "calls"),
        ("json_object", {"response_format": {"type": "json_object"}}, "Tell me of Beijing as JSON.", "json"),
        ("json_schema", {"response_format": schema}, "Return the record as JSON.", "record"),
        ("logprobs", {"logprobs": True, "top_logprobs": 2}, READY, "logprobs"),
        ("n", {"n": 2}, READY, "choices"),
    ]
    switchable = context.profile.thinking.supported and context.profile.thinking.mode != "none"
    for name, fields, prompt, witness in rows:
        for on in (True, False) if switchable else (None,):
            yield Probe(
                fact=f"claims/{name}" + ("" if on is None else f"/thinking-{'on' if on else 'off'}"),
                fields=fields,
                prompt=prompt,
                max_tokens=ROOM,
                switch=on,
                witness=witness,
            )
    yield Probe(fact="claims/dynamic_tools", fields={}, messages=declared, max_tokens=ROOM, witness="call", prompt="")


def _thinking(context: Context) -> Iterator[Probe]:
    thinking = context.profile.thinking
    question = "What is 17 times 23? Think it over, then give the number."
    yield Probe(fact="thinking/default", fields={}, prompt=question, max_tokens=ROOM, reads="reasoning")
    for mode in thinking.modes if thinking.supported else ():
        for on, word in ((True, "on"), (False, "off")):
            yield Probe(
                fact=f"thinking/{mode}/{word}",
                fields={},
                prompt=question,
                max_tokens=ROOM,
                switch=on,
                mode=mode,
                witness="reasoning" if on else "no-reasoning",
                reads="reasoning",
            )
    if thinking.supported and thinking.efforts and thinking.mode != "none":
        for effort in dict.fromkeys((*thinking.efforts, *EFFORTS)):
            yield Probe(fact=f"efforts/{effort}", fields={}, switch=True, effort=effort)


def _is_json(text: str, wanted: Any = None) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and (wanted is None or value == wanted)


#: what shows in an answer that it did what was asked
WITNESSES: Mapping[str, Callable[[Observation], bool]] = {
    "call": lambda seen: any(call.name == "get_weather" for call in seen.tool_calls),
    "get_time": lambda seen: {call.name for call in seen.tool_calls} == {"get_time"},
    "calls": lambda seen: len(seen.tool_calls) >= 2,
    "json": lambda seen: _is_json(seen.answer),
    "record": lambda seen: _is_json(seen.answer, {"code": "K-7741"}),
    "choices": lambda seen: len({choice.index for choice in seen.choices}) == 2,
    "reasoning": lambda seen: bool(seen.reasoning),
    "no-reasoning": lambda seen: not seen.reasoning,
    "logprobs": lambda seen: bool(seen.first.logprobs),
}
