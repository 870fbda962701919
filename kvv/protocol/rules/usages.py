"""Section: usage, in every place where it may stand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kvv.core import Area, Frame, Level, Observation, UsageReport
from kvv.protocol.rules.base import BREAKS, DIFFERS, KVV, OPENAI, OPENAI_STREAM, RuleInfo, Scope, kind_of, stream_rule
from kvv.protocol.rules.track import RuleContext

_rule = partial(RuleInfo, area=Area.USAGE, kind=BREAKS, section="usage")
_kimi = partial(RuleInfo, area=Area.USAGE, level=Level.SHOULD, kind=DIFFERS, scope=Scope.KIMI_STREAM, section="usage")
MUST, SHOULD = Level.MUST, Level.SHOULD
RULES = (
    _rule(
        id="usage/missing",
        level=MUST,
        p0=True,
        source=f"{OPENAI}; {KVV}; {stream_rule('P0.1')}",
        requirement="A body, and a stream with include_usage, MUST carry usage.",
    ),
    _rule(
        id="usage/tail-frame",
        level=MUST,
        p0=True,
        source=f"{OPENAI_STREAM}; {stream_rule('P0.1')}",
        requirement="With include_usage the last chunk before [DONE] MUST carry usage and empty choices.",
    ),
    _rule(
        id="usage/tail-position",
        level=SHOULD,
        kind=DIFFERS,
        p0=True,
        source=stream_rule("P0.1"),
        requirement="The usage chunk SHOULD come after the finish of every choice.",
    ),
    _rule(
        id="usage/once",
        level=MUST,
        source=OPENAI_STREAM,
        requirement="The usage chunk MUST come at most once.",
    ),
    _rule(
        id="usage/integers",
        level=MUST,
        p0=True,
        causes=("F10",),
        source=f"{OPENAI}; {stream_rule('P0.2')}",
        requirement="prompt_tokens, completion_tokens and total_tokens MUST be integers from 0.",
    ),
    _rule(
        id="usage/total",
        level=MUST,
        causes=("F10",),
        source=OPENAI,
        requirement="total_tokens MUST be prompt_tokens plus completion_tokens.",
    ),
    _rule(
        id="usage/prompt-zero",
        level=MUST,
        causes=("F10", "C09"),
        source=OPENAI,
        requirement="prompt_tokens MUST NOT be 0: every prompt has tokens.",
    ),
    _rule(
        id="usage/completion-zero",
        level=MUST,
        causes=("C09",),
        source=OPENAI,
        requirement="completion_tokens MUST NOT be 0 when text or tool calls came.",
    ),
    _rule(
        id="usage/cached",
        level=MUST,
        source=OPENAI,
        requirement="cached_tokens MUST be an integer not above prompt_tokens.",
    ),
    _rule(
        id="usage/reasoning",
        level=MUST,
        source=OPENAI,
        requirement="reasoning_tokens MUST be an integer not above completion_tokens.",
    ),
    _rule(
        id="usage/equal",
        level=MUST,
        source=f"{OPENAI_STREAM}; {stream_rule('P0.4')}",
        requirement="Usage MUST be the same in every place where one answer states it.",
    ),
    _rule(
        id="usage/unasked",
        level=SHOULD,
        kind=DIFFERS,
        causes=("C08", "C09"),
        source=f"{OPENAI_STREAM}; {stream_rule('P2')}",
        requirement="A stream without include_usage SHOULD NOT carry top-level usage.",
    ),
    _rule(
        id="usage/monotonic",
        level=SHOULD,
        kind=DIFFERS,
        source=stream_rule("continuous_usage_stats"),
        requirement="Running usage SHOULD NOT decrease from chunk to chunk.",
    ),
    _kimi(
        id="usage/middle",
        source=stream_rule("P1.15"),
        requirement="A middle chunk SHOULD NOT carry usage unless continuous_usage_stats asks for it.",
    ),
    _kimi(
        id="usage/reasoning-zero",
        source=stream_rule("P0.2"),
        requirement="reasoning_tokens, where it is sent, SHOULD NOT be 0 when reasoning came.",
    ),
    _kimi(
        id="usage/details",
        p0=True,
        source=stream_rule("P0.2"),
        requirement="Usage SHOULD carry reasoning_tokens and cached_tokens, 0 where there are none.",
    ),
    _kimi(
        id="usage/end-frame",
        p0=True,
        source=stream_rule("P0.4"),
        requirement="The chunk with finish_reason SHOULD carry choices[0].usage with its details.",
    ),
    _rule(
        id="usage/headers",
        level=Level.MAY,
        kind=DIFFERS,
        scope=Scope.USAGE_HEADERS,
        p0=True,
        source=stream_rule("P0.18"),
        requirement="Responses MAY carry X-Msh-Usage-Prompt-Tokens and X-Msh-Usage-Cached-Tokens.",
    ),
    _rule(
        id="usage/headers-equal",
        level=SHOULD,
        kind=DIFFERS,
        scope=Scope.USAGE_HEADERS,
        p0=True,
        source=stream_rule("P0.18"),
        requirement="X-Msh-Usage headers, where they are sent, SHOULD equal usage.",
    ),
)

_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_DETAILS = (("prompt_tokens_details", "cached_tokens"), ("completion_tokens_details", "reasoning_tokens"))


class Usages:
    __slots__ = ("_context", "_ended", "_frames", "_highest", "_kimi", "_sink", "_summaries")

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._sink = context.sink
        self._kimi = context.sink.on("usage/details")
        self._summaries = 0
        #: whether the end frame of a choice carried usage
        self._ended = False
        #: place -> its last frame
        self._frames: dict[str, Frame] = {}
        self._highest: dict[str, int] = {}

    def chunk(self, frame: Frame, usage: object, choices: list[Any] | None) -> None:
        """A chunk's top-level usage that is not null."""
        if not isinstance(usage, dict):
            self._sink.hit("usage/integers", frame, f"usage is {kind_of(usage)}, not an object")
            return
        context, asked = self._context, self._context.asked
        if choices:
            self._frames["chunk"] = frame
            self._running(frame, usage)
            if not asked.continuous_usage and not self._finishing(choices):
                self._sink.hit("usage/middle", frame, "a middle chunk carries usage")
        else:
            self._frames["summary"] = frame
            self._summaries += 1
            if self._summaries > 1:
                self._sink.hit("usage/once", frame, "a second usage chunk comes")
            if any(track.finishes == 0 for track in context.choices.values()) or not context.choices:
                self._sink.hit("usage/tail-position", frame, "the usage chunk comes before finish_reason")
        if asked.known and not asked.include_usage and not asked.continuous_usage:
            self._sink.hit("usage/unasked", frame, "usage comes though include_usage was not set")

    def choice(self, frame: Frame, usage: object, *, ending: bool) -> None:
        """A choice's own usage that is not null."""
        if not isinstance(usage, dict):
            self._sink.hit("usage/integers", frame, f"usage is {kind_of(usage)}, not an object")
            return
        self._frames["choice"] = frame
        self._ended = self._ended or ending
        if not ending:
            self._running(frame, usage)
            if not self._context.asked.continuous_usage:
                self._sink.hit("usage/middle", frame, "a middle chunk carries usage")

    def body(self, frame: Frame, usage: object) -> None:
        self._frames["body"] = frame
        if usage is not None and not isinstance(usage, dict):
            self._sink.hit("usage/integers", frame, f"usage is {kind_of(usage)}, not an object")

    def finish(self, observation: Observation, complete: bool) -> None:
        reports = {report.place: report for report in observation.usage}
        if complete and self._context.objects:
            self._presence(reports)
        final = next((reports[place] for place in ("body", "summary", "choice", "chunk") if place in reports), None)
        if final is not None and complete:
            self._arithmetic(final, observation)
        self._equality(reports)
        self._headers(reports, final, complete)

    def _presence(self, reports: Mapping[str, UsageReport]) -> None:
        context = self._context
        hit, asked = self._sink.hit, context.asked
        inside = [place for place in reports if place != "header"]
        if not context.streamed:
            if not inside:
                hit("usage/missing", context.body_frame, "the body has no usage")
            return
        if asked.include_usage:
            if not inside:
                hit("usage/missing", context.last_frame, "the stream has no usage, though include_usage was set")
            elif not self._summaries:
                hit("usage/tail-frame", context.last_frame, "usage came, but not in a last chunk with empty choices")
        if not self._ended:
            frame = next((track.finish_frame for track in context.choices.values()), None)
            hit("usage/end-frame", frame, "the chunk with finish_reason carries no choices[0].usage")

    def _arithmetic(self, report: UsageReport, observation: Observation) -> None:
        frame, hit = self._frames.get(report.place), self._sink.hit
        prompt, completion, total = (report.count(name) for name in _COUNTS)
        if prompt is None or completion is None or total is None or prompt < 0 or completion < 0 or total < 0:
            wrong = [
                name
                for name, count in zip(_COUNTS, (prompt, completion, total), strict=True)
                if count is None or count < 0
            ]
            hit("usage/integers", frame, ", ".join(f"{name} is {kind_of(report.raw.get(name))}" for name in wrong))
        if prompt is not None and completion is not None and total is not None and prompt + completion != total:
            hit("usage/total", frame, f"{prompt} + {completion} is not {total}")
        if prompt == 0:
            hit("usage/prompt-zero", frame, "prompt_tokens is 0")
        if completion == 0 and any(c.answer or c.reasoning or c.tool_calls for c in observation.choices):
            hit("usage/completion-zero", frame, "completion_tokens is 0, though text or tool calls came")
        self._details(report, observation, prompt, completion)

    def _details(
        self, report: UsageReport, observation: Observation, prompt: int | None, completion: int | None
    ) -> None:
        frame, hit = self._frames.get(report.place), self._sink.hit
        for (group, name), rule, bound in zip(
            _DETAILS, ("usage/cached", "usage/reasoning"), (prompt, completion), strict=True
        ):
            inner = report.raw.get(group)
            value = inner.get(name) if isinstance(inner, dict) else None
            if value is None:
                if self._kimi:
                    hit("usage/details", frame, f"{group}.{name} is absent")
            elif value.__class__ is not int or value < 0:
                hit(rule, frame, f"{name} is {kind_of(value)}")
            elif bound is not None and value > bound:
                hit(rule, frame, f"{name} is {value}, more than the {bound} it is part of")
        flat = report.raw.get("cached_tokens")
        nested = report.detail("prompt_tokens_details", "cached_tokens")
        if flat is not None and nested is not None and flat != nested:
            hit("usage/equal", frame, f"cached_tokens is {kind_of(flat)} at the top and {nested} in the details")
        if report.detail("completion_tokens_details", "reasoning_tokens") == 0 and any(
            c.reasoning for c in observation.choices
        ):
            hit("usage/reasoning-zero", frame, "reasoning_tokens is 0, though reasoning came")

    def _equality(self, reports: Mapping[str, UsageReport]) -> None:
        """The tail frame against the end frame of the only choice; running usage in middle chunks is another matter."""
        summary, choice = reports.get("summary"), reports.get("choice")
        if summary is None or choice is None or not self._ended or self._context.asked.n > 1:
            return
        for name, (one, other) in _shared(summary, choice).items():
            if one != other:
                self._sink.hit(
                    "usage/equal",
                    self._frames.get("summary"),
                    f"{name} is {one} in the usage chunk and {other} in the choice",
                )

    def _headers(self, reports: Mapping[str, UsageReport], final: UsageReport | None, complete: bool) -> None:
        header = reports.get("header")
        if header is None:
            if complete and self._context.objects:
                self._sink.hit("usage/headers", None, "the response has no X-Msh-Usage headers")
        elif final is not None:
            for name, (one, other) in _shared(header, final).items():
                if one != other:
                    self._sink.hit(
                        "usage/headers-equal",
                        self._frames.get(final.place),
                        f"{name} is {one} in the header and {other} in usage",
                    )

    def _running(self, frame: Frame, usage: dict[str, Any]) -> None:
        asked = self._context.asked
        inner = usage.get("completion_tokens_details")
        reasoning = inner.get("reasoning_tokens") if isinstance(inner, dict) else None
        for name, value in (("completion_tokens", usage.get("completion_tokens")), ("reasoning_tokens", reasoning)):
            if value.__class__ is not int:
                continue
            highest = self._highest.get(name, 0)
            if value < highest and asked.n == 1:
                self._sink.hit("usage/monotonic", frame, f"{name} falls from {highest} to {value}")
            if value > highest:
                self._highest[name] = value
                # reasoning is over once a call begins; the chunk that begins it may still count what came before
                if name == "reasoning_tokens" and asked.continuous_usage and self._calling():
                    self._sink.hit("usage/monotonic", frame, "reasoning_tokens still grow while tool calls stream")

    def _calling(self) -> bool:
        """Whether a tool call had chunks before this one."""
        return any(call.frame is not call.last for track in self._context.choices.values() for call in track.calls)

    @staticmethod
    def _finishing(choices: list[Any]) -> bool:
        return any(isinstance(choice, dict) and choice.get("finish_reason") is not None for choice in choices)


def _shared(one: UsageReport, other: UsageReport) -> dict[str, tuple[int, int]]:
    """Counts that both reports state."""
    shared: dict[str, tuple[int, int]] = {}
    for name in _COUNTS:
        if (a := one.count(name)) is not None and (b := other.count(name)) is not None:
            shared[name] = (a, b)
    for group, name in _DETAILS:
        if (a := one.detail(group, name)) is not None and (b := other.detail(group, name)) is not None:
            shared[name] = (a, b)
    return shared
