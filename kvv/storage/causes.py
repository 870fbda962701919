"""Why a run is no pass, as a few causes: failed cases and findings of wire rules that say the same are one.

``find_causes`` is the one function behind every report. Pure: values in, values out.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvv.core import Area, Gate, Level, Outcome
from kvv.decision.inputs import CountedFindings
from kvv.profiles.known_faults import faults_like
from kvv.protocol.rules import RULES
from kvv.rendering.escape import bound_text
from kvv.storage.view import Cause, CauseKind, CheckRow, RunView

#: ids of cases that a cause names; the report's checks and the store have all
NAMED = 50
#: characters of what differs
WHAT = 240
#: values that the cases of one cause wanted, or that they vary in
VARIED = 6
#: known faults that are named
FAULTS = 6

#: cases of our own, such as signs of life
OWN = "kvv/"

#: what stands in a client's way, by reason code; another reason is told in its own words
TITLES: Mapping[str, str] = {
    "answers-mixed-up": "answers of concurrent requests are mixed up",
    "argument-missing": "a tool call lacks an argument",
    "arguments-differ": "tool-call arguments are not those that were asked for",
    "arguments-no-object": "tool-call arguments are JSON encoded twice or no object",
    "arguments-not-json": "tool-call arguments are not JSON",
    "broke-off": "the answer breaks off",
    "cache-lost": "cached_tokens no longer says what was cached",
    "call-count": "the number of tool calls is wrong",
    "choice-count": "the number of choices is not n",
    "choice-unfinished": "a choice has no finish_reason",
    "content-no-object": "JSON mode answers with no object",
    "content-not-json": "JSON mode answers with text that is not JSON",
    "error-as-stream": "a refusal comes as an event stream",
    "error-envelope": "an error body has the wrong form",
    "error-in-200": "an error comes with status 200",
    "error-type": "error.type is wrong",
    "finish-reason": "finish_reason is wrong",
    "held-back": "the stream is held back and comes in one piece",
    "invalid-request-accepted": "invalid requests are accepted",
    "junk": "the answer is junk",
    "leaked": "a value of one request appears in another's answer",
    "limit-exceeded": "max_tokens is exceeded",
    "lost-in-one-form": "text is lost in one of two forms of the same request",
    "misread": "pictures are misread",
    "miscounted": "a long count goes wrong",
    "needle-missed": "a fact in a long prompt is not found",
    "no-call": "a required tool call is missing",
    "no-content": "the answer has no content",
    "no-logprobs": "log probabilities are missing",
    "no-reasoning": "reasoning is missing",
    "no-usage": "usage is missing",
    "one-burst": "the stream comes in one burst",
    "other-tool": "a wrong tool is called",
    "prompt-tokens": "prompt_tokens is not the published count",
    "prompt-tokens-plateau": "the prompt is cut: prompt_tokens stops growing",
    "rate-too-low": "answers are right too rarely",
    "reasoning-as-content": "reasoning comes as content",
    "refusal-not-json": "a refusal has no JSON body",
    "refused-in-200": "a refusal comes with status 200",
    "reproducible-500": "a request crashes the server every time",
    "reproducible-cut": "a request cuts the connection every time",
    "reproducible-hang": "a request hangs the server every time",
    "schema-mismatch": "tool-call arguments do not match their schema",
    "small-default-budget": "answers are cut short when max_tokens is not sent",
    "stop-ignored": "the stop sequence is ignored",
    "stop-leaks": "part of the stop sequence leaks into the answer",
    "texts-alike": "sampling parameters have no effect: the answers are alike",
    "tool-id-repeats": "tool-call ids repeat",
    "unwanted-call": "a tool is called where none is allowed",
    "usage-zero": "usage counts are zero",
    "valid-request-refused": "valid requests are refused",
    "wrong-answer": "the answer is wrong",
    "wrong-value": "a value in the structured answer is wrong",
}
#: wire rules that object to what a reason of a contract case objects to: one cause, seen twice
KIN: Mapping[str, str] = {
    "chunk/choice-count": "choice-count",
    "errors/envelope": "error-envelope",
    "errors/in-200": "error-in-200",
    "errors/json": "refusal-not-json",
    "finish/at-cap": "finish-reason",
    "finish/over-cap": "limit-exceeded",
    "finish/stop-string": "stop-ignored",
    "finish/tool-calls": "finish-reason",
    "format/json": "content-not-json",
    "heuristic/junk": "junk",
    "logprobs/present": "no-logprobs",
    "tools/arguments-json": "arguments-not-json",
    "tools/arguments-object": "arguments-no-object",
    "tools/choice-named": "no-call",
    "tools/choice-none": "unwanted-call",
    "tools/choice-required": "no-call",
    "tools/id-distinct": "tool-id-repeats",
    "usage/missing": "no-usage",
}
#: reasons whose area says what is broken: a wrong answer to a picture and one to a long prompt are two causes
BY_AREA = frozenset(
    {
        "",
        "invalid-request-accepted",
        "no-content",
        "rate-too-low",
        "reproducible-500",
        "reproducible-cut",
        "reproducible-hang",
        "valid-request-refused",
        "wrong-answer",
        "wrong-value",
    }
)
#: whose topic (params/rejected, errors/key) says it too
BY_TOPIC = frozenset({"invalid-request-accepted", "valid-request-refused"})
#: a rate's first wrong answer says why: its words, and the reason that a single answer of that kind has
_WORDS = (
    (re.compile(r"^(?:no )?finish_reason\b"), "finish-reason"),
    (re.compile(r"^arguments of .{0,200} are \w+, no object$", re.S), "arguments-no-object"),
    (re.compile(r"^arguments are '\"", re.S), "arguments-no-object"),
    (re.compile(r"^arguments of .{0,200} are no JSON\b", re.S), "arguments-not-json"),
    (re.compile(r"^no tool call\b"), "no-call"),
)
_RATE = re.compile(r"^\d+ of \d+ answers; want [^;]{0,80}; (?P<first>.*)$", re.S)
_NAMED = re.compile(r"^[\w.-]{1,40}: ")
_TIMES = re.compile(r"[ ,]+\(?\d+ of \d+ (?:samples|times)\)?(?=$|;)")
_FINISH = re.compile(r"finish_reason is '?(?P<value>[\w-]{1,40})'?")
_WANT = re.compile(r",? (?:want|instead of) (?P<wanted>.{1,200})$", re.S)
_REMARK = re.compile(r" \([^()]{0,80} in this answer\)$")
_STREAMS = {"stream": "streamed", "whole": "whole", "thinking-on": "thinking on", "thinking-off": "thinking off"}
MODES = tuple(_STREAMS.values())


@dataclass(frozen=True, slots=True)
class Symptom:
    """``family`` and ``mark`` identify what is wrong; ``what`` and ``wanted`` say it for people."""

    family: str
    mark: str
    what: str
    wanted: str = ""

    @property
    def id(self) -> str:
        """Names the cause in addresses, alike in every run."""
        short = re.sub(r"[^a-z0-9]+", "-", self.family.lower()).strip("-")[:60] or "unnamed"
        return f"{short}-{hashlib.sha256(self.mark.encode('utf-8', 'replace')).hexdigest()[:6]}" if self.mark else short


def symptom(reason: str, detail: str, area: Area, case: str) -> Symptom:
    """What a failed contract case objects to, without what varies from case to case."""
    text = detail[:2_000]
    if reason == "rate-too-low" and (rate := _RATE.match(text)):
        first = _NAMED.sub("", rate["first"])
        for words, family in _WORDS:
            if words.match(first):
                reason, text = family, first
                break
    text = _NAMED.sub("", _TIMES.sub("", text), count=1) if reason in TITLES else _TIMES.sub("", text)
    wanted = _WANT.search(text)
    what = text[: wanted.start()] if wanted else text
    if reason == "finish-reason":
        value = _FINISH.search(what)
        mark = value["value"] if value else ""
        what = f"finish_reason is '{mark}'" if mark else what
        return Symptom(reason, mark, what, wanted["wanted"] if wanted else "")
    mark = area.value if reason in BY_AREA else ""
    mark += f"/{_topic(case)}" if reason in BY_TOPIC else ""
    return Symptom(reason, mark, what, wanted["wanted"] if wanted else "")


def symptom_of(row: CheckRow) -> Symptom:
    return symptom(row.verdict.reason, row.verdict.detail, row.case.area, row.case.id)


def _of_rule(found: CountedFindings) -> Symptom:
    family, message = KIN.get(found.rule, found.rule), _REMARK.sub("", found.message)
    value = _FINISH.search(message) if family == "finish-reason" else None
    return Symptom(family, value["value"] if value else "", message)


@dataclass(slots=True)
class _Group:
    symptom: Symptom
    rows: list[CheckRow] = field(default_factory=list)
    rules: list[CountedFindings] = field(default_factory=list)
    counts: bool = False
    whats: Counter[str] = field(default_factory=Counter)
    wanted: Counter[str] = field(default_factory=Counter)

    def add(self, row: CheckRow, found: Symptom, *, counts: bool) -> None:
        self.rows.append(row)
        self.counts = self.counts or counts
        self.whats[found.what] += 1
        for one in filter(None, found.wanted.split(" or ")):
            self.wanted[one] += 1


def find_causes(view: RunView) -> tuple[Cause, ...]:
    """What kept the run from a pass, the largest first; then what is shown only, then what stayed open."""
    if view.trouble:
        silent = [row for row in view.checks if is_silent(row)]
        rest = [row for row in view.checks if not is_silent(row)]
        causes = [_endpoint(view, silent)] if silent or not view.checks else []
    else:
        causes, rest = [], list(view.checks)
    found = [*_broken(view), *_gates(view)]
    found.sort(key=lambda cause: (not cause.counts, cause.level is not Level.MUST, -(cause.cases + cause.answers)))
    return (*causes, *found, *_open(view, rest))


def _broken(view: RunView) -> Iterator[Cause]:
    groups: dict[tuple[str, str], _Group] = {}
    for row in view.checks:
        if row.verdict.outcome is Outcome.FAIL and row.case.suite not in view.benchmarks:
            found = symptom_of(row)
            group = groups.setdefault((found.family, found.mark), _Group(found))
            group.add(row, found, counts=view.counts(row))
    for rule in view.decision.findings:
        found = _of_rule(rule)
        group = groups.setdefault((found.family, found.mark), _Group(found))
        group.rules.append(rule)
        group.counts = group.counts or rule in view.decision.breaking
    thinking: dict[str, set[str]] = {}
    for row in view.checks:
        thinking.setdefault(row.case.suite, set()).update(part for part in row.case.id.split("/") if part in _STREAMS)
    both = {suite for suite, parts in thinking.items() if parts >= {"thinking-on", "thinking-off"}}
    for group in groups.values():
        yield _told(group, MODES if both & {row.case.suite for row in group.rows} else MODES[:2])


def _told(group: _Group, told: Sequence[str]) -> Cause:
    found, rows, rules = group.symptom, group.rows, group.rules
    order = (Level.MUST, Level.SHOULD, Level.MAY)
    title = TITLES.get(found.family, "") or (_rule_title(rules) if rules else _words(found))
    what = group.whats.most_common(1)[0][0] if rows else found.what
    if found.family == "finish-reason" and found.mark:
        title, what = f"finish_reason is {found.mark}", ""
    if found.family == "invalid-request-accepted":
        what = f"{_topic(rows[0].case.id)}: {', '.join(_some(dict.fromkeys(_subject(row.case.id) for row in rows)))}"
    wanted = _some(one for one, _ in group.wanted.most_common())
    expected = f"want {' or '.join(wanted)}" if wanted else ""
    detail = ", ".join(filter(None, (bound_text(what, WHAT) if what != title else "", expected)))
    answers = max((rule.exchanges for rule in rules), default=0)
    example = next((row for row in rows if not row.waived and row.verdict.evidence), rows[0] if rows else None)
    return Cause(
        id=found.id,
        kind=CauseKind.CASES if rows else CauseKind.RULE,
        title=title,
        detail=detail,
        reason=found.family,
        rules=tuple(rule.rule for rule in rules),
        level=min((*(row.level for row in rows), *(rule.level for rule in rules)), key=order.index),
        counts=group.counts,
        areas=tuple(dict.fromkeys((*(r.case.area.value for r in rows), *(rule.area.value for rule in rules)))),
        suites=tuple(dict.fromkeys(row.case.suite for row in rows)),
        cases=len(rows),
        answers=answers,
        waived=sum(row.waived for row in rows),
        levels=tuple((level, n) for level in order if (n := sum(row.level is level for row in rows))),
        modes=_modes(rows, rules, told),
        faults=faults_like(
            tuple(dict.fromkeys(name for rule in rules for name in rule.causes)),
            {f"{found.family}@{row.case.area.value}" for row in rows},
        )[:FAULTS],
        case_ids=tuple(row.id for row in rows[:NAMED]),
        example=example.id if example else "",
        exchange="" if example else _telling(e.exchange for rule in rules for e in rule.examples),
        expected=next((RULES[rule.rule].requirement for rule in rules if rule.rule in RULES), ""),
    )


def _rule_title(rules: Iterable[CountedFindings]) -> str:
    """The first objection in the rule's own words."""
    return next((bound_text(_REMARK.sub("", rule.message), WHAT) for rule in rules), "")


def _telling(exchanges: Iterable[str]) -> str:
    """The first exchange of a planned case, else the first."""
    every = list(exchanges)
    return next((key for key in every if not key.startswith(OWN)), every[0] if every else "")


def _words(found: Symptom) -> str:
    return found.family.replace("-", " ") or bound_text(found.what, WHAT) or "failed without a reason"


def _some(values: Iterable[str]) -> list[str]:
    every = list(values)
    return every[:VARIED] if len(every) <= VARIED else [*every[:VARIED], f"{len(every) - VARIED} more"]


def _subject(case: str) -> str:
    """What a case is about: its id without suite, topic and modes."""
    parts = [part for part in case.split("/") if part not in _STREAMS]
    return "/".join(parts[2:] or parts[-1:])


def _topic(case: str) -> str:
    parts = case.split("/")
    return parts[1] if len(parts) > 1 else ""


def _modes(
    rows: Iterable[CheckRow], rules: Iterable[CountedFindings], told: Sequence[str] = MODES[:2]
) -> tuple[str, ...]:
    found = {_STREAMS[part] for row in rows for part in row.case.id.split("/") if part in _STREAMS}
    for rule in rules:
        if rule.streamed is not None:
            found |= {"streamed"} if rule.streamed else set()
            found |= {"whole"} if rule.streamed < rule.exchanges else set()
    return tuple(mode for mode in told if mode in found)


def _gates(view: RunView) -> Iterator[Cause]:
    """Failed gates of benchmarks and service levels: what no case and no rule explains."""
    for gate in view.decision.gates:
        if gate.decision is Outcome.FAIL and not gate.id.startswith("contract/"):
            yield _gate(gate, view)


def _gate(gate: Gate, view: RunView) -> Cause:
    suite, _, metric = gate.id.partition("/")
    wrong = [row for row in view.checks if row.case.suite == suite and row.verdict.outcome is Outcome.FAIL]
    benchmark = suite in view.benchmarks
    more = sum(u.n for u in view.unlisted if u.suite == suite and u.outcome is Outcome.FAIL)
    return Cause(
        id=re.sub(r"[^a-z0-9]+", "-", f"gate-{gate.id}".lower()).strip("-")[:80],
        kind=CauseKind.GATE,
        title=f"{view.title(suite)}: {metric} is below what is required" if benchmark else f"{gate.id} is missed",
        detail=bound_text(gate.reason, 400),
        reason=gate.id,
        level=gate.level,
        counts=True,
        areas=(gate.area.value,),
        suites=(suite,) if benchmark else (),
        answers=len(wrong) + more if benchmark else 0,
        case_ids=tuple(row.id for row in wrong[:NAMED]),
        example=wrong[0].id if wrong else "",
    )


def is_silent(row: CheckRow) -> bool:
    """Whether trouble of the whole run explains that the sample has no result."""
    return row.verdict.outcome is Outcome.INCONCLUSIVE and not row.verdict.reason.endswith("-once")


def _endpoint(view: RunView, silent: list[CheckRow]) -> Cause:
    return Cause(
        id="endpoint",
        kind=CauseKind.ENDPOINT,
        title=bound_text(view.trouble, 600),
        reason="endpoint",
        level=Level.MUST,
        counts=True,
        areas=(Area.AVAILABILITY.value,),
        cases=len(silent) + sum(u.n for u in view.unlisted if u.outcome is Outcome.INCONCLUSIVE),
        case_ids=tuple(row.id for row in silent[:NAMED]),
    )


def _open(view: RunView, rows: Iterable[CheckRow]) -> Iterator[Cause]:
    """Cases that stayed open, and those on which our own code failed."""
    groups: dict[tuple[Outcome, str], list[CheckRow]] = {}
    for row in rows:
        if row.verdict.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR):
            groups.setdefault((row.verdict.outcome, row.verdict.reason), []).append(row)
    for (outcome, reason), group in sorted(groups.items(), key=lambda item: (item[0][0].value, -len(item[1]))):
        ours = outcome is Outcome.ERROR
        yield Cause(
            id=Symptom(reason, outcome.value, "").id,
            kind=CauseKind.OURS if ours else CauseKind.OPEN,
            title=f"{'an error of kvv' if ours else 'not decided'}: {reason.replace('-', ' ') or 'no reason given'}",
            detail=bound_text(group[0].verdict.detail, WHAT),
            reason=reason,
            level=group[0].level,
            counts=False,
            areas=tuple(dict.fromkeys(row.case.area.value for row in group)),
            suites=tuple(dict.fromkeys(row.case.suite for row in group)),
            cases=len(group),
            modes=_modes(group, ()),
            case_ids=tuple(row.id for row in group[:NAMED]),
            example=group[0].id,
        )


def with_example(cause: Cause, row: CheckRow) -> Cause:
    """The cause with its example's request, answer, expectation and curl line."""
    return replace(
        cause, request=row.request, answer=row.answer, expected=row.expected or cause.expected, curl=row.curl
    )
