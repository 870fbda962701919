"""What a passive rule is, which level it has for a profile, and how objections are collected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from kvv.core import STRENGTH, Area, Finding, FindingKind, Frame, Level, Surface
from kvv.profiles.profile import Profile

OPENAI = "OpenAI API reference, chat completions: https://platform.openai.com/docs/api-reference/chat"
OPENAI_STREAM = (
    "OpenAI API reference, chat completion chunks: https://platform.openai.com/docs/api-reference/chat-streaming"
)
OPENAI_TOOLS = "OpenAI function calling guide: https://platform.openai.com/docs/guides/function-calling"
WHATWG = "WHATWG HTML, server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html"
RFC8259 = "RFC 8259: https://www.rfc-editor.org/rfc/rfc8259"
KVV = "https://github.com/MoonshotAI/Kimi-Vendor-Verifier"
OWN = "an observation of ours, no standard"

BREAKS = FindingKind.BREAKS_CLIENTS
DIFFERS = FindingKind.DIFFERS

#: findings shown per rule and exchange; the message of the first says how many there were
SHOWN = 3
EXCERPT = 400


def stream_rule(*numbers: str) -> str:
    """The source string of rules of Moonshot's stream specification, by its numbers."""
    return f"Moonshot stream specification {', '.join(numbers)}"


class Scope(StrEnum):
    """Whose promise a rule is: everybody's, or that of profiles which make it."""

    ANY = "any"
    KIMI_STREAM = "kimi-stream"
    PHASES = "contiguous-phases"
    USAGE_HEADERS = "usage-headers"
    CHAT_ID = "chat-id"
    TOOL_ID = "tool-id"
    THINKING = "thinking"
    LOGPROBS = "logprobs"
    REQUIRED = "tool-choice-required"
    NAMED = "tool-choice-named"
    PARALLEL = "parallel-tool-calls"
    JSON_OBJECT = "json-object"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleInfo:
    """One rule. ``level`` holds on the surface vendor and official, ``engine`` (default the same) on bare engines,
    ``moonshot`` for models whose contract is Moonshot's, which does not promise all that the OpenAI API does;
    ``p0`` rules become must under the policy moonshot-stream. ``causes`` are ids of the fault catalogue."""

    id: str
    area: Area
    level: Level
    kind: FindingKind
    requirement: str
    source: str
    section: str
    causes: tuple[str, ...] = ()
    scope: Scope = Scope.ANY
    engine: Level | None = None
    moonshot: Level | None = None
    p0: bool = False


@dataclass(frozen=True, slots=True)
class Promises:
    """What decides the levels: small and hashable, so that they are computed once per profile."""

    scopes: frozenset[Scope]
    engine: bool
    moonshot: bool
    #: the model's contract is Moonshot's, whatever the policy
    kimi: bool = False

    @staticmethod
    def of(profile: Profile, *, moonshot_stream: bool) -> Promises:
        wire, claims = profile.wire, profile.claims
        made = {
            Scope.ANY: True,
            Scope.KIMI_STREAM: wire.moonshot_stream,
            Scope.PHASES: wire.contiguous_phases,
            Scope.USAGE_HEADERS: wire.usage_headers,
            Scope.CHAT_ID: bool(wire.chat_id),
            Scope.TOOL_ID: bool(wire.tool_id),
            Scope.THINKING: profile.thinking.supported,
            Scope.LOGPROBS: claims.logprobs,
            Scope.REQUIRED: claims.required,
            Scope.NAMED: claims.named,
            Scope.PARALLEL: claims.parallel,
            Scope.JSON_OBJECT: claims.json_object,
        }
        scopes = frozenset(scope for scope, holds in made.items() if holds)
        return Promises(scopes, profile.surface is Surface.ENGINE, moonshot_stream, kimi="moonshot" in claims.contracts)


#: scopes that the policy moonshot-stream claims for a profile that does not
_MOONSHOT_SCOPES = frozenset({Scope.KIMI_STREAM, Scope.USAGE_HEADERS})


def level_of(rule: RuleInfo, promises: Promises) -> Level | None:
    """The rule's level for these promises; None where it is not applied."""
    if promises.moonshot and rule.p0:
        return Level.MUST
    if rule.scope not in promises.scopes and not (promises.moonshot and rule.scope in _MOONSHOT_SCOPES):
        return None
    level = (rule.engine if promises.engine else None) or rule.level
    return max(level, rule.moonshot, key=STRENGTH.index) if promises.kimi and rule.moonshot else level


def levels_of(rules: Iterable[RuleInfo], promises: Promises) -> Mapping[str, Level]:
    """The level of every rule that is applied."""
    return {rule.id: level for rule in rules if (level := level_of(rule, promises)) is not None}


def excerpt_of(data: bytes) -> str:
    """At most 400 characters of a frame: hostile bytes escaped."""
    return printable(data[: EXCERPT * 4].decode("utf-8", "backslashreplace"))


def printable(text: str, limit: int = EXCERPT) -> str:
    """``text`` with lone surrogates and control characters escaped, cut to ``limit``."""
    text = text[:limit].encode("utf-8", "backslashreplace").decode("utf-8")
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == " " else c.encode("unicode_escape").decode("ascii") for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass(slots=True)
class _Hits:
    level: Level
    count: int
    shown: list[tuple[Frame | None, str, str]]


def _place(frame: Frame | None) -> float:
    return inf if frame is None else frame.number


class Sink:
    """Collects objections: the first few of each rule with their frames, of the rest the number."""

    __slots__ = ("_found", "_levels", "hits")

    def __init__(self, levels: Mapping[str, Level]) -> None:
        self._levels = levels
        self._found: dict[tuple[str, Level], _Hits] = {}
        #: objections so far; a frame after which it is unchanged was clean
        self.hits = 0

    def on(self, rule: str) -> bool:
        return rule in self._levels

    def hit(
        self,
        rule: str,
        frame: Frame | None,
        message: str,
        *,
        excerpt: str | None = None,
        cap: Level | None = None,
        times: int = 1,
    ) -> None:
        """Object, unless the rule is off. ``cap`` lowers a must to it where the evidence is weaker than the rule."""
        level = self._levels.get(rule)
        if level is None:
            return
        if cap is not None and level is Level.MUST:
            level = cap
        self.hits += 1
        found = self._found.get((rule, level))
        if found is None:
            found = self._found[rule, level] = _Hits(level, 0, [])
        found.count += times
        # texts are scanned in batches, so objections may come out of order: the earliest frames are shown
        if len(found.shown) == SHOWN and _place(frame) >= _place(found.shown[-1][0]):
            return
        text = excerpt if excerpt is not None else excerpt_of(frame.data) if frame is not None else ""
        found.shown.append((frame, printable(message, 600), printable(text)))
        found.shown.sort(key=lambda shown: _place(shown[0]))
        del found.shown[SHOWN:]

    def findings(self, rules: Mapping[str, RuleInfo]) -> tuple[Finding, ...]:
        """Ordered by frame, then rule; objections to the whole answer come last."""
        made: list[Finding] = []
        for (rule, level), found in self._found.items():
            info = rules[rule]
            for number, (frame, message, excerpt) in enumerate(found.shown):
                more = (
                    f" ({found.count} times in this answer)" if number == 0 and found.count > len(found.shown) else ""
                )
                made.append(
                    Finding(
                        rule=rule,
                        area=info.area,
                        level=level,
                        kind=info.kind,
                        message=message + more,
                        frame=frame.number if frame is not None else None,
                        excerpt=excerpt,
                        causes=info.causes,
                    )
                )
        return tuple(sorted(made, key=lambda f: (f.frame is None, f.frame or 0, f.rule, f.level)))

    def objected(self) -> Iterable[Frame]:
        """The frames that findings point at, each once, in order."""
        frames = {
            frame.number: frame for found in self._found.values() for frame, _, _ in found.shown if frame is not None
        }
        return [frames[number] for number in sorted(frames)]


def kind_of(value: object) -> str:
    """A wrong value in words that cannot be long."""
    match value:
        case None:
            return "absent or null"
        case "":
            return "empty"
        case str() | bool() | int() | float():
            return f"{value!r:.80}"
        case _:
            return f"of type {type(value).__name__}"
