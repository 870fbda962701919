"""Case files to cases: entries, thinking modes, stream modes, levels, claims, and the requests' bodies."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from kvv.cases.case_file import ENTRY_FIELDS, REFERENCE, CaseFile, CaseFileError, CaseSpec, CaseVariant, Round, Switch
from kvv.cases.suite import Context
from kvv.core import STRENGTH, Area, Case, Level, Surface
from kvv.protocol.classify import is_probe
from kvv.protocol.rules import RULES
from kvv.protocol.rules.base import Promises, level_of

#: tokens that no window of a model with a profile holds: vendors serve windows larger than the published one
BEYOND = 1_100_000
#: how often a call is asked for that cannot be forced, and the share of calls that must be right: fewer would let no
#: number of wrong ones be a verdict
ASKED, RIGHT = 6, 0.5
#: the stop sequences that are too many (errors/too-many)
STOPS = 6
#: how deep snippets may stand in snippets
_DEPTH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingMode:
    """``thinking`` None sends no switch at all; ``stream`` None: each variant says for itself."""

    thinking: bool | None
    stream: bool | None

    @property
    def slugs(self) -> list[str]:
        thinking = [] if self.thinking is None else [f"thinking-{_word(self.thinking)}"]
        return thinking + ([] if self.stream is None else ["stream" if self.stream else "whole"])


def expand(suite: str, case_file: CaseFile, context: Context) -> Iterator[Case]:
    """Every case of a file for one profile and run, the skipped ones included."""
    for spec in case_file.case:
        _same_level(suite, spec, context)
        for entry, suffix in _entries(spec, context):
            for mode in _modes(case_file, spec, context):
                if entry.get("thinking", _word(mode.thinking)) != _word(mode.thinking) and mode.thinking is not None:
                    continue
                yield _Expansion(suite, case_file, spec, context, entry, mode).case(suffix)


def plain_case(
    case_id: str,
    *,
    suite: str,
    area: Area,
    level: Level,
    requirement: str,
    source: str,
    since: str,
    body: Mapping[str, Any],
    control: Mapping[str, Any],
    checks: Mapping[str, Any],
    expect: str = "answered",
    skip: str = "",
    risk: bool = False,
    asked: bool = False,
) -> Case:
    """A case of one request that comes from data instead of a case file. Bodies are sent as they are, directives
    included. ``asked``: a call that is not forced, so that a rate of several answers decides.
    """
    stream = body.get("stream") is True
    one = {"body": dict(body), "stream": stream}
    entry = {
        "requests": {f"sample.{number}": one for number in range(1, ASKED + 1)} if asked else {"": one},
        "expect": expect,
        "checks": dict(checks),
        "compare": {},
        "rate": {"at-least": RIGHT} if asked else {},
        **({"only_calls": True} if asked else {}),
    }
    return Case(
        id=case_id,
        suite=suite,
        area=area,
        level=level,
        requirement=requirement,
        source=source,
        since=since,
        risk=risk,
        inputs={
            "body": dict(body),
            "control": dict(control),
            "stream": stream,
            "expect": expect,
            "statuses": [400, 422],
            "checks": dict(checks),
            "skip": skip,
            "afterwards": False,
            "rounds": [entry],
            "requests": ASKED if asked else 1,
        },
    )


class _Expansion:
    """One case in the making."""

    def __init__(
        self,
        suite: str,
        case_file: CaseFile,
        spec: CaseSpec,
        context: Context,
        entry: Mapping[str, Any],
        mode: ThinkingMode,
    ) -> None:
        self.suite = suite
        self.file = case_file
        self.context = context
        self.mode = mode
        listed = isinstance(spec.each, tuple)
        self.variables = {name: value for name, value in entry.items() if name not in ENTRY_FIELDS} if listed else {}
        # an entry's own fields lie over the case's; tables are joined
        own = {name: value for name, value in entry.items() if listed and name in ENTRY_FIELDS and name != "id"}
        merged = {
            name: {**getattr(spec, name), **value} if name in ("body", "checks") else value
            for name, value in own.items()
        }
        self.spec = CaseSpec.model_validate({**dict(spec), **merged}) if merged else spec
        #: an entry of the profile's parameters that only warns
        self.warned = not listed and entry in context.profile.decoding.warned
        #: calls are asked for in the prompt, since the profile does not promise that they can be forced
        self.asked = "calls" in self.spec.claims and not can_force(context, thinks=thinks(mode.thinking, context))
        self.fields = {} if listed else {name: value for name, value in entry.items() if name != "thinking"}
        self.shown = {
            **self.variables,
            "id": entry.get("id", ""),
            "entry": ", ".join(f"{name} {value}" for name, value in self.fields.items()),
        }

    def case(self, suffix: str) -> Case:
        spec, skip = self.spec, self._skip()
        afterwards = self.file.afterwards if spec.afterwards is None else spec.afterwards
        rounds = self._rounds()
        first = next(iter(rounds[0]["requests"].values()))
        return Case(
            id="/".join([self.suite, spec.id + suffix, *self.mode.slugs]),
            suite=self.suite,
            area=spec.area or self.file.area,
            level=self._level(),
            requirement=spec.requirement.format(**self.shown),
            source=spec.source or self.file.source,
            since=spec.since or self.file.since,
            risk=spec.risk,
            inputs={
                "body": first.get("body", {}),
                "control": self._control(),
                "plain": self._base(None, None, stream=False),
                "stream": self.mode.stream is True,
                "expect": spec.expect,
                "statuses": list(spec.statuses),
                "credential": spec.credential.value,
                "checks": self._fill({**spec.checks, **spec.compare}),
                "skip": skip,
                "afterwards": afterwards,
                "rounds": rounds,
                "requests": 0
                if skip
                else sum(len(entry["requests"]) for entry in rounds) + (afterwards and spec.expect == "refused"),
            },
        )

    def _level(self) -> Level:
        """A call that is asked for and a claim at second hand warn at most."""
        soft = (
            self.asked
            or self.warned
            or not _needed(self.file, self.spec).isdisjoint(self.context.profile.claims.second_hand)
        )
        level = _level(self.spec, self.context)
        return max(level, Level.SHOULD, key=STRENGTH.index) if soft else level

    # --- rounds ----------------------------------------------------------------------------------

    def _rounds(self) -> list[dict[str, Any]]:
        spec = self.spec
        if spec.rounds:
            return [self._script_round(entry) for entry in spec.rounds]
        rate = {
            key: value for key, value in (("at-least", spec.at_least), ("at-most", spec.at_most)) if value is not None
        }
        checks, compare, samples = self._fill(spec.checks), self._fill(spec.compare), spec.samples
        if self.asked and not spec.rated:
            rate, compare, samples = {"at-least": RIGHT}, {}, ASKED
        if spec.variants and spec.sequence:
            parts = [
                self._round({name: self._variant(variant)}, spec.expect, checks, {}, rate)
                for name, variant in spec.variants.items()
            ]
            return [*parts[:-1], {**parts[-1], "compare": compare}]
        requests = {name: self._variant(variant) for name, variant in spec.variants.items()} or {
            "": self._request([spec], CaseVariant())
        }
        if samples > 1:
            requests = {
                f"{name or 'sample'}.{number}": request
                for name, request in requests.items()
                for number in range(1, samples + 1)
            }
        return [self._round(requests, spec.expect, checks, compare, rate)]

    def _script_round(self, entry: Round) -> dict[str, Any]:
        requests = {
            name: self._request([self.spec, entry, variant], variant) for name, variant in entry.variants.items()
        }
        requests = requests or {entry.name: self._request([self.spec, entry], entry)}
        return self._round(requests, entry.expect, self._fill(entry.checks), self._fill(entry.compare), {})

    def _round(
        self, requests: Mapping[str, Any], expect: str, checks: Any, compare: Any, rate: Mapping[str, float]
    ) -> dict[str, Any]:
        free = any(request.get("body", {}).get("tool_choice") == "auto" for request in requests.values())
        only_calls = self.spec.only_calls or (self.asked and free)
        return {
            "requests": dict(requests),
            "expect": expect,
            "checks": checks,
            "compare": compare,
            "rate": dict(rate),
            **({"only_calls": True} if only_calls else {}),
        }

    def _variant(self, variant: CaseVariant) -> dict[str, Any]:
        return self._request([self.spec, variant], variant)

    def _request(self, layers: Sequence[CaseSpec | CaseVariant], mode: CaseVariant) -> dict[str, Any]:
        """A stored request: its body (directives unresolved), or the raw text to send."""
        raw = next((layer.raw for layer in reversed(layers) if layer.raw is not None), None)
        stream = self.mode.stream if mode.stream is None else mode.stream
        if raw is not None:
            return {"raw": self._fill(raw), "stream": bool(stream)}
        effort = next((layer.effort for layer in reversed(layers) if layer.effort is not None), None)
        body = self._base(self._thinking(mode.thinking), effort, stream=bool(stream))
        for layer in layers:
            body = self._overlay(body, layer)
            if isinstance(layer, CaseSpec):
                body |= self._fill(self.fields)
        length = self.context.profile.wire.history_id_length
        if length is not None and "messages" in body:
            body["messages"] = short_ids(body["messages"], length)
        return {"body": body, "stream": body.get("stream") is True}

    def _thinking(self, switch: Switch | None) -> bool | None:
        if switch is None or not self.context.profile.thinking.supported:
            return self.mode.thinking
        return {"on": True, "off": False, "default": None}[switch]

    def _control(self) -> dict[str, Any]:
        """The accepting sibling: the plainest request in the same mode, or the one the file names."""
        body = self._base(self.mode.thinking, self.spec.effort, stream=bool(self.mode.stream))
        control = self.spec.control or self.file.control
        if control is not None:
            return self._overlay(body, control)
        return self._overlay(body, CaseVariant(prompt=self.spec.prompt)) if self.spec.prompt else body

    def _base(self, thinking: bool | None, effort: str | None, *, stream: bool) -> dict[str, Any]:
        """The plainest request: model, prompt, limit, thinking switch at the lowest effort, stream mode."""
        context, settings = self.context, self.context.settings
        efforts = context.profile.thinking.efforts
        body: dict[str, Any] = {
            "model": context.model,
            "messages": [{"role": "user", "content": self.file.prompt}],
            "max_tokens": self.file.max_tokens,
        }
        effort = effort or settings.effort or (efforts[0] if efforts else None)
        body |= context.profile.thinking_body(on=thinking, effort=effort, mode=settings.think_mode)
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body | dict(settings.extra_body)

    def _overlay(self, body: Mapping[str, Any], layer: CaseSpec | CaseVariant) -> dict[str, Any]:
        laid = dict(body)
        if layer.prompt is not None:
            laid["messages"] = [{"role": "user", "content": self._fill(layer.prompt)}]
        if layer.messages is not None:
            laid["messages"] = self._fill(layer.messages)
        laid |= self._fill(layer.body)
        return {name: value for name, value in laid.items() if name not in layer.omit}

    # --- references --------------------------------------------------------------------------------

    def _fill(self, value: Any, depth: int = 0) -> Any:
        """Snippets and variables put in; directives stay."""
        if depth > _DEPTH:
            raise ValueError(f"suites/{self.suite}/cases.toml: snippets refer to each other without end")
        if isinstance(value, str):
            if value.startswith("@@"):
                return value[1:]
            return self._fill(self._named(value[1:]), depth + 1) if REFERENCE.fullmatch(value) else value
        if isinstance(value, Mapping):
            return {key: self._fill(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._fill(item, depth + 1) for item in value]
        return value

    def _named(self, name: str) -> Any:
        profile = self.context.profile
        if name in self.variables:
            return self.variables[name]
        if name in self.file.snippets:
            return self.file.snippets[name]
        match name:
            case "null":
                return None
            case "model":
                return self.context.model
            case "other-model":
                return self.context.other_model
            case "context-window":
                return profile.context_window
            case "beyond-window":
                return max(profile.context_window, BEYOND)
            case "stub":
                return profile.tokens.stub if profile.surface is Surface.ENGINE else 0
            case "tools-limit":
                return 128
            case "call-choice":
                return "auto" if self.asked else "required"
            case "reasoning-field":
                return list(profile.thinking.fields)
        # a snippet may name a variable that only some cases have
        raise ValueError(f"suites/{self.suite}/cases.toml: case {self.spec.id!r}: nothing is called '@{name}' here")

    # --- whether at all ------------------------------------------------------------------------------

    def _skip(self) -> str:
        """Why the case is skipped, or nothing."""
        profile, spec = self.context.profile, self.spec
        if spec.surfaces and profile.surface not in spec.surfaces:
            return f"not asked of the surface {profile.surface}"
        reason = next((reason for key, reason in spec.skip.items() if _fits(key, self.context)), "")
        if reason:
            return reason
        off = self.mode.thinking is False and not thinking_off(self.context)
        needed = [*self.file.claims, *spec.claims, *(["thinking-off"] if off else [])]
        missing = [claim for claim in needed if not is_claimed(self.context, claim)]
        idle = sorted(_needed(self.file, spec).intersection(profile.claims.not_thinking))
        if idle and not missing and thinks(self.mode.thinking, self.context):
            return f"the profile {profile.id} claims {', '.join(idle)} only while the model does not think"
        outside = {
            "other-model": "no --other-model",
            "tokenizer": "no --tokenizer",
            "key": "no key is sent, or headers that may be one",
        }
        unclaimed = [claim for claim in missing if claim not in outside]
        if unclaimed:
            return f"the profile {profile.id} does not claim {', '.join(unclaimed)} on the surface {profile.surface}"
        return outside[missing[0]] if missing else ""


def expected_of(case: Case, purpose: str) -> str:
    """What the endpoint is to do with a request of this purpose: ``answered``, ``refused`` or ``either``. Of a
    benchmark's sample and of a control: answer it.
    """
    if is_probe(purpose):
        return "answered"
    name = purpose.partition(":")[2]
    return next((entry["expect"] for entry in case.inputs.get("rounds", ()) if name in entry["requests"]), "answered")


def short_ids(value: Any, length: int) -> Any:
    """Messages of a history with ids of calls of ``length`` letters and digits, the same for the same id."""
    if isinstance(value, (list, tuple)):
        return [short_ids(item, length) for item in value]
    if not isinstance(value, Mapping):
        return value
    made = {key: short_ids(item, length) for key, item in value.items()}
    for key in ("tool_call_id", *(["id"] if made.get("type") == "function" else [])):
        if isinstance(made.get(key), str):
            made[key] = hashlib.sha256(made[key].encode()).hexdigest()[:length]
    return made


def is_claimed(context: Context, claim: str) -> bool:
    """Whether the profile (or the run) claims a feature. ``schema:const`` is an entry of claims.schema_extra,
    ``contract:kimi-k3`` one of claims.contracts.
    """
    profile = context.profile
    if claim.startswith("schema:"):
        return claim.removeprefix("schema:") in profile.claims.schema_extra
    if claim.startswith("contract:"):
        return claim.removeprefix("contract:") in profile.claims.contracts
    match claim:
        case "thinking":
            return profile.thinking.supported and context.settings.thinking is not False
        case "separate-reasoning":
            return profile.thinking.supported and not profile.thinking.inline and context.settings.thinking is not False
        case "thinking-off":
            return thinking_off(context)
        case "always-thinks":
            return profile.thinking.supported and not thinking_off(context)
        case "effort":
            return bool(profile.thinking.efforts) and context.settings.thinking is not False
        case "keep":
            return profile.thinking.keep and context.settings.thinking is not False
        case "other-model":
            return bool(context.other_model)
        case "key":
            return context.keyed
        case "tokenizer":
            return context.tokenizer is not None
        case "calls":
            return profile.claims.tools
        case "tokens":
            return profile.tokens.message is not None
        case "moonshot-stream":
            return profile.wire.moonshot_stream
        case "stop-limit":
            return profile.decoding.stop_limit is not None and profile.decoding.stop_limit < STOPS
    return bool(getattr(profile.claims, claim))


def thinks(switch: bool | None, context: Context) -> bool:
    """Whether the model thinks under this switch; None is the endpoint's default."""
    thinking = context.profile.thinking
    return thinking.default if switch is None else switch and thinking.supported


def can_force(context: Context, *, thinks: bool) -> bool:
    """Whether the profile claims that a call can be forced, in this state of thinking."""
    return is_claimed(context, "required") and not (thinks and "required" in context.profile.claims.not_thinking)


def thinking_off(context: Context) -> bool:
    """Thinking can be switched off here, says the profile or ``--thinking off``."""
    thinking = context.profile.thinking
    return (
        thinking.supported
        and (thinking.can_disable or context.settings.thinking is False)
        and context.settings.thinking is not True
    )


def _entries(spec: CaseSpec, context: Context) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The entries that the case repeats over, with a slug for each; one empty entry otherwise."""
    if spec.each is None:
        yield {}, ""
    elif isinstance(spec.each, tuple):
        yield from ((entry, f"/{entry['id']}") for entry in spec.each)
    else:
        for entry in getattr(context.profile.decoding, spec.each):
            shown = "-".join(f"{name}-{value}" for name, value in entry.items() if name != "thinking")
            yield entry, "/" + re.sub(r"[^a-z0-9.]+", "-", shown.lower().replace("--", "-minus-").replace("_", "-"))


def _modes(case_file: CaseFile, spec: CaseSpec, context: Context) -> Iterator[ThinkingMode]:
    streams: list[bool | None] = {"both": [True, False], "on": [True], "off": [False], "mixed": [None]}[
        spec.stream or case_file.stream
    ]  # type: ignore[assignment]
    for thinking in _thinking_modes(spec.thinking or case_file.thinking, context, _needed(case_file, spec)):
        yield from (ThinkingMode(thinking=thinking, stream=stream) for stream in streams)


def _needed(case_file: CaseFile, spec: CaseSpec) -> set[str]:
    """The claims that a case rests on; calls are tools."""
    claims = {*case_file.claims, *spec.claims}
    return claims | {"tools"} if "calls" in claims else claims


def _thinking_modes(wanted: str, context: Context, needed: Set[str]) -> list[bool | None]:
    """``each``: on, and off where the profile or the run claims it. A profile without thinking gets no switch.

    ``--thinking`` decides for the cases that leave it open; ``on`` then follows the run, since most only want a mode.
    What the profile claims only while the model does not think is asked so, where that can be.
    """
    thinking, settings = context.profile.thinking, context.settings
    idle = not needed.isdisjoint(context.profile.claims.not_thinking)
    if idle and thinking_off(context) and needed.isdisjoint({"thinking", "separate-reasoning"}):
        return [False]
    if wanted == "default" or not thinking.supported:
        return [None]
    if wanted == "off":
        return [False]
    if settings.thinking is not None:
        return [settings.thinking]
    return [True, False] if wanted == "each" and thinking.can_disable else [True]


def _word(thinking: bool | None) -> str:
    return "on" if thinking else "off"


def _same_level(suite: str, spec: CaseSpec, context: Context) -> None:
    """A case and the rule that states its requirement must bind alike: CaseFileError where they do not."""
    if spec.rule is None:
        return
    profile = context.profile
    rule = level_of(RULES[spec.rule], Promises.of(profile, moonshot_stream=False))
    case = _level(spec, context)
    if rule is not None and rule is not case:
        raise CaseFileError(
            f"suites/{suite}/cases.toml: case {spec.id!r} is a {case} under the profile {profile.id} on the surface"
            f" {profile.surface}, and its rule {spec.rule} a {rule}; give both one level"
        )


def _fits(key: str, context: Context) -> bool:
    """A surface, ``*``, a claim, ``not:claim``, or one of the two with ``/surface``."""
    claim, _, surface = key.partition("/")
    if surface and surface != context.profile.surface:
        return False
    if claim in ("*", context.profile.surface):
        return True
    if claim in {*Surface}:
        return False
    return is_claimed(context, claim.removeprefix("not:")) != claim.startswith("not:")


def _level(spec: CaseSpec, context: Context) -> Level:
    """The case's level; an entry of ``levels`` that fits can only lower it."""
    decoding = context.profile.decoding
    named = {"reject": decoding.reject_level, "type": decoding.type_level}
    level = named[spec.level] if isinstance(spec.level, str) and spec.level in named else Level(spec.level)
    fitting = next((level for key, level in spec.levels.items() if _fits(key, context)), level)
    return max(level, fitting, key=STRENGTH.index)
