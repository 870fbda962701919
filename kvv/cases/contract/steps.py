"""The steps that bring a contract case to its verdict, from positive observations only.

A case is a list of rounds; a round is one request or several asked at once. Every request must be answered for a
verdict (or refused, where that is expected: beside an answered sibling). What counts against the vendor is confirmed by
one more kept sample; a crash counts when it happens three times of three between answered controls. A rate is judged
from its samples together, never from one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvv.cases.checks import ANSWER_CHECKS, COMPARISONS, Check, CheckInput, CheckProblem
from kvv.cases.checks.base import inconclusive
from kvv.cases.contract.build import BUILDERS, Builder, Unbuildable, build
from kvv.cases.contract.rates import RateTally
from kvv.core import (
    Answered,
    Ask,
    Case,
    Credential,
    Done,
    Evidence,
    History,
    Outcome,
    Request,
    Step,
    Timeouts,
    Verdict,
)
from kvv.protocol.classify import PLAIN, Assessment, Classification, assess

#: crashes needed for a verdict, each followed by an answered control
CRASHES = 3
#: how often an invalid request is asked that was answered once
ACCEPTED_OF = 4
#: no correct server needs longer to begin its answer to a small request; the transport adds to it by the prompt's
#: length
FIRST_BYTE_S = 180.0
#: exchanges that a verdict points at
_EVIDENCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """What a suite's case file may name. ``extended`` gives a suite its own functions beside the common ones."""

    checks: Mapping[str, Check]
    comparisons: Mapping[str, Check]
    builders: Mapping[str, Builder]

    def extended(
        self,
        *,
        checks: Mapping[str, Check] | None = None,
        comparisons: Mapping[str, Check] | None = None,
        builders: Mapping[str, Builder] | None = None,
    ) -> Toolbox:
        return Toolbox(
            checks={**self.checks, **(checks or {})},
            comparisons={**self.comparisons, **(comparisons or {})},
            builders={**self.builders, **(builders or {})},
        )


COMMON = Toolbox(checks=ANSWER_CHECKS, comparisons=COMPARISONS, builders=BUILDERS)


def contract_step(case: Case, history: History, scorer: str, toolbox: Toolbox = COMMON) -> Step:
    """The next step of a contract case. Pure: the history decides."""
    skip = case.inputs["skip"]
    if skip:
        return Done(
            verdict=Verdict(
                case=case.id, sample=case.sample, outcome=Outcome.SKIP, reason="not-claimed", detail=skip, scorer=scorer
            )
        )
    replies = [answered for reply in history if isinstance(reply, tuple) for answered in reply]
    return _Judgement(case, replies, scorer, toolbox).next()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settled:
    """A request that got what was expected of it. ``second`` is the confirming sample, when it was asked: an answer, or
    why there is none.
    """

    reply: Answered
    second: Answered | Assessment | None = None
    refused: bool = False


class _Judgement:
    """Weighs all requests so far, round by round."""

    def __init__(self, case: Case, replies: Sequence[Answered], scorer: str, toolbox: Toolbox) -> None:
        self.case = case
        self.scorer = scorer
        self.toolbox = toolbox
        self.rounds: Sequence[Mapping[str, Any]] = case.inputs["rounds"]
        self.probes: dict[str, list[Answered]] = {}
        self.between: dict[str, list[Answered]] = {}
        self.plain: dict[str, Answered] = {}
        self.control: Answered | None = None
        self.after: list[Answered] = []
        for reply in replies:
            kind, _, name = reply.request.purpose.partition(":")
            match kind:
                case "control":
                    self.control = reply
                case "between":
                    self.between.setdefault(name, []).append(reply)
                case "plain":
                    self.plain[name] = reply
                case "after":
                    self.after.append(reply)
                case _:
                    self.probes.setdefault(name, []).append(reply)
        #: the answers of concluded rounds, by name
        self.answers: dict[str, Answered] = {}
        self.note: CheckProblem | None = None
        self.tally: RateTally | None = None

    def next(self) -> Step:
        try:
            for entry in self.rounds:
                step = self._round(entry)
                if step is not None:
                    return step
        except Unbuildable as missing:
            return self._done(Outcome.INCONCLUSIVE, missing.reason, missing.detail)
        if self.tally is not None:
            outcome, reason, detail = self.tally.verdict()
            return self._done(outcome, reason, detail)
        return (
            self._done(Outcome.PASS, self.note.reason, self.note.detail)
            if self.note
            else self._done(Outcome.PASS, "", "")
        )

    def _round(self, entry: Mapping[str, Any]) -> Step | None:
        """What the round still needs, its verdict, or None when it is concluded well."""
        names = list(entry["requests"])
        if not any(self.probes.get(name) for name in names):
            asks = [self._request(entry, name, "probe") for name in names]
            return Ask(
                requests=(
                    *asks,
                    *([self._control("control")] if entry["expect"] == "refused" and self.control is None else []),
                )
            )
        settled: dict[str, _Settled] = {}
        unsettled: list[Step] = []
        missing: list[str] = []
        for name in names:
            found = self._settle(entry, name)
            if isinstance(found, _Settled):
                settled[name] = found
            elif entry["rate"] and isinstance(found, Done) and found.verdict.outcome is Outcome.INCONCLUSIVE:
                missing.append(found.verdict.reason)
            else:
                unsettled.append(found)
        if unsettled:
            # a verdict against the vendor before one that says nothing, and that before more questions
            return min(unsettled, key=_urgency)
        return self._weighed(entry, settled, missing)

    def _weighed(
        self, entry: Mapping[str, Any], settled: Mapping[str, _Settled], missing: Sequence[str]
    ) -> Step | None:
        self.answers |= {name: one.reply for name, one in settled.items()}
        if entry["rate"]:
            self._count(entry, settled, missing)
            return None
        refused = next((one for one in settled.values() if one.refused), None)
        if refused is not None and entry["expect"] == "either":
            return self._done(Outcome.PASS, "refused", "refused, which is allowed")
        problem = self._problem(entry, self.answers, list(settled))
        if problem is not None:
            return self._objected(entry, settled, problem)
        if refused is not None and self.case.inputs.get("afterwards"):
            return self._afterwards()
        return None

    # --- one request --------------------------------------------------------------------------------

    def _settle(self, entry: Mapping[str, Any], name: str) -> _Settled | Step:
        """Where a request stands: the shortest run of its replies that settles it, then the confirming sample behind
        that.
        """
        replies = self.probes.get(name, [])
        found = [self._standing(entry, reply) for reply in replies]
        step: _Settled | Step = self._done(Outcome.INCONCLUSIVE, "not-asked", f"the request {name!r} was not asked")
        for length in range(1, len(replies) + 1):
            step = self._settle_prefix(entry, name, replies[:length], found[:length])
            if isinstance(step, _Settled):
                if length == len(replies):
                    return step
                same = found[-1].standing is found[length - 1].standing
                return _Settled(reply=step.reply, refused=step.refused, second=replies[-1] if same else found[-1])
        return step

    def _settle_prefix(
        self, entry: Mapping[str, Any], name: str, replies: Sequence[Answered], found: Sequence[Assessment]
    ) -> _Settled | Step:
        last, expect = found[-1], entry["expect"]
        match last.standing:
            case Classification.ANSWERED:
                return self._answered(entry, name, replies, found)
            case Classification.REFUSED:
                return self._refused(entry, name, replies, found)
            case Classification.SERVER_ERROR | Classification.UNAVAILABLE if _crash(last):
                return self._crashed(entry, name, found)
            case Classification.NOT_A_COMPLETION if last.reason == "refusal-not-json" and expect == "refused":
                if sum(one.reason == "refusal-not-json" for one in found) < 2:
                    return self._again(entry, name)
                return self._done(Outcome.FAIL, "refusal-not-json", "refused, but not with a JSON body")
            case _:
                return self._done(Outcome.INCONCLUSIVE, last.reason, last.detail)

    def _answered(
        self, entry: Mapping[str, Any], name: str, replies: Sequence[Answered], found: Sequence[Assessment]
    ) -> _Settled | Step:
        if entry["expect"] == "refused":
            return self._accepted(entry, name, found)
        if _count(found, Classification.REFUSED):
            return self._done(
                Outcome.INCONCLUSIVE, "unstable-refusal", "the same valid request was refused once and answered once"
            )
        return _Settled(reply=replies[-1])

    def _accepted(self, entry: Mapping[str, Any], name: str, found: Sequence[Assessment]) -> Step:
        """An invalid request that was answered: twice is a verdict; once among refusals may be anything."""
        accepted, refused = _count(found, Classification.ANSWERED), _count(found, Classification.REFUSED)
        if accepted >= 2:
            replicas = "; not every replica enforces it" if refused else ""
            detail = f"answered with a completion, {accepted} of {accepted + refused} times{replicas}"
            return self._done(Outcome.FAIL, "invalid-request-accepted", detail)
        if accepted + refused < ACCEPTED_OF:
            return self._again(entry, name)
        detail = f"answered with a completion once and refused {refused} times"
        return self._done(Outcome.INCONCLUSIVE, "invalid-request-accepted-once", detail, first=True)

    def _refused(
        self, entry: Mapping[str, Any], name: str, replies: Sequence[Answered], found: Sequence[Assessment]
    ) -> _Settled | Step:
        if entry["expect"] == "refused":
            if _count(found, Classification.ANSWERED):
                return self._accepted(entry, name, found)
            return self._beside_control(replies[-1])
        if entry["expect"] == "either":
            # the sibling of a request that may be refused is asked only when it was
            return (
                Ask(requests=(self._control("control"),)) if self.control is None else self._beside_control(replies[-1])
            )
        if _count(found, Classification.ANSWERED):
            return self._done(
                Outcome.INCONCLUSIVE, "unstable-refusal", "the same valid request was answered once and refused once"
            )
        if _count(found, Classification.REFUSED) < 2:
            return self._again(entry, name)
        between = self.between.get(name, [])
        if not between:
            # an account or a route may have ended in mid-run: then the plainest request is refused too
            return Ask(requests=(self._control(_purpose("between", name)),))
        if not _is_answered(between[-1]):
            return self._dead_alike(
                name, "control-not-answered", f"refused, but so was its valid sibling: {found[-1].detail}"
            )
        return self._done(
            Outcome.FAIL, "valid-request-refused", f"{name}: {found[-1].detail}" if name else found[-1].detail
        )

    def _beside_control(self, refusal: Answered) -> _Settled | Step:
        """A refusal is believed only beside an answered sibling: an endpoint that refuses everything keeps no rule."""
        if self.control is None or not _is_answered(self.control):
            return self._done(
                Outcome.INCONCLUSIVE,
                "control-not-answered",
                "refused, but so was (or without an answer stayed) its valid sibling",
            )
        return _Settled(reply=refusal, refused=True)

    def _crashed(self, entry: Mapping[str, Any], name: str, found: Sequence[Assessment]) -> Step:
        """Three of three, each between answered controls of the same shape, is the vendor's fault and no accident."""
        between = self.between.get(name, [])
        if not all(_is_answered(control) for control in between):
            return self._dead_alike(name, found[-1].reason, "and the control request after it had no answer either")
        crashes = sum(bool(_crash(one)) for one in found)
        if crashes < len(found):
            # the same request was answered or refused before: an accident, not this request's doing
            return self._done(Outcome.INCONCLUSIVE, found[-1].reason, found[-1].detail)
        if len(between) < crashes:
            return Ask(requests=(self._control(_purpose("between", name)),))
        if crashes >= CRASHES:
            detail = f"{crashes} of {crashes} times, while the control requests between were answered"
            return self._done(Outcome.FAIL, f"reproducible-{_crash(found[-1])}", detail)
        return self._again(entry, name)

    def _dead_alike(self, name: str, reason: str, detail: str) -> Step:
        """A request and its control fared alike: the mode that both share may be dead, and not the endpoint. The
        plainest request, without what may be dead, tells; over the whole run that is a rate by feature
        (``kvv.decision.features``), and no verdict on this case.
        """
        if "plain" in self.case.inputs and name not in self.plain:
            return Ask(requests=(self._control(_purpose(PLAIN, name), "plain"),))
        alive = name in self.plain and _is_answered(self.plain[name])
        told = "; the plainest request, not streamed and without its fields, was answered" if alive else ""
        return self._done(Outcome.INCONCLUSIVE, reason, detail + told)

    def _again(self, entry: Mapping[str, Any], name: str) -> Ask:
        return Ask(requests=(self._request(entry, name, "confirm"),))

    # --- what the answers say -------------------------------------------------------------------------

    def _problem(
        self, entry: Mapping[str, Any], answers: Mapping[str, Answered], names: Sequence[str]
    ) -> CheckProblem | None:
        """The first FAIL among checks and comparisons, else the first that cannot be decided; notes are kept."""
        problems = [problem for name in names for problem in self._checked(entry, answers, name)]
        look = CheckInput(answered=answers[names[-1]], case=self.case, siblings=answers)
        problems += _all(self.toolbox.comparisons, entry["compare"], look)
        for problem in problems:
            if problem.outcome is Outcome.PASS:
                self.note = self.note or problem
        return next((one for one in problems if one.outcome is Outcome.FAIL), None) or next(
            (one for one in problems if one.outcome is not Outcome.PASS), None
        )

    def _checked(self, entry: Mapping[str, Any], answers: Mapping[str, Answered], name: str) -> list[CheckProblem]:
        if entry.get("only_calls") and not answers[name].observation.tool_calls:
            return [inconclusive("no-call-made", "the model made no call")]
        found = _all(
            self.toolbox.checks, entry["checks"], CheckInput(answered=answers[name], case=self.case, siblings=answers)
        )
        if name and len(entry["requests"]) > 1:
            found = [
                CheckProblem(reason=one.reason, detail=f"{name}: {one.detail}", outcome=one.outcome) for one in found
            ]
        return found

    def _objected(self, entry: Mapping[str, Any], settled: Mapping[str, _Settled], problem: CheckProblem) -> Step:
        """A verdict against the vendor wants one more kept sample of the whole round."""
        if problem.outcome is not Outcome.FAIL:
            return self._done(problem.outcome, problem.reason, problem.detail)
        unasked = [name for name, one in settled.items() if one.second is None]
        if unasked:
            return Ask(requests=tuple(self._request(entry, name, "confirm") for name in unasked))
        lost = next((one.second for one in settled.values() if isinstance(one.second, Assessment)), None)
        if lost is not None:
            detail = f"{problem.detail}; the confirming sample had no answer: {lost.detail}"
            return self._done(Outcome.INCONCLUSIVE, lost.reason or "not-confirmed", detail)
        second = {
            **self.answers,
            **{name: one.second for name, one in settled.items() if isinstance(one.second, Answered)},
        }
        again = self._problem(entry, second, list(settled))
        if again is not None and again.outcome is Outcome.FAIL:
            return self._done(Outcome.FAIL, problem.reason, f"{problem.detail} (2 of 2 samples)")
        detail = f"{problem.detail} (1 of 2 samples)"
        return self._done(Outcome.INCONCLUSIVE, f"{problem.reason}-once", detail, first=True)

    def _count(self, entry: Mapping[str, Any], settled: Mapping[str, _Settled], missing: Sequence[str]) -> None:
        """A rate's samples: each passes, fails or cannot be told."""
        passed: list[bool | None] = []
        details: list[str] = []
        for name in settled:
            problems = [one for one in self._checked(entry, self.answers, name) if one.outcome is not Outcome.PASS]
            failed = any(one.outcome is Outcome.FAIL for one in problems)
            passed.append(False if failed else None if problems else True)
            details += [one.detail for one in problems[:1]]
        self.tally = RateTally(
            passed=[*passed, *([None] * len(missing))], bounds=entry["rate"], details=[*details, *missing]
        )

    def _afterwards(self) -> Step | None:
        """After a refusal the endpoint must still answer; one silence is forgiven, if the next control is answered."""
        if self.after and _is_answered(self.after[-1]):
            return None
        if len(self.after) < 2:
            return Ask(requests=(self._control("after"),))
        found = assess(self.after[-1].exchange, self.after[-1].observation)
        detail = f"refused as it should be, but no valid request was answered afterwards: {found.reason}"
        return self._done(Outcome.INCONCLUSIVE, "silent-afterwards", detail)

    # --- requests and verdicts ------------------------------------------------------------------------

    def _request(self, entry: Mapping[str, Any], name: str, kind: str) -> Request:
        stored = entry["requests"][name]
        built = build(stored["raw" if "raw" in stored else "body"], self.answers, self.toolbox.builders)
        body = built.encode("utf-8", "surrogatepass") if isinstance(built, str) else built
        return Request(
            body=body,
            stream=stored["stream"],
            purpose=_purpose(kind, name),
            timeouts=Timeouts(first_byte=FIRST_BYTE_S),
            credential=Credential(self.case.inputs.get("credential", Credential.OWN)),
        )

    def _control(self, purpose: str, which: str = "control") -> Request:
        """The valid sibling: ``control`` is shared within a minute, ``between`` and ``after`` are always sent."""
        body = build(self.case.inputs[which], self.answers, self.toolbox.builders)
        return Request(
            body=body, stream=body.get("stream") is True, purpose=purpose, timeouts=Timeouts(first_byte=FIRST_BYTE_S)
        )

    def _standing(self, entry: Mapping[str, Any], probe: Answered) -> Assessment:
        """The outcome table, but a status the case names as its refusal counts as one."""
        found = assess(probe.exchange, probe.observation)
        named = entry["expect"] == "refused" and probe.exchange.status in self.case.inputs["statuses"]
        if named and found.standing is Classification.CONFIGURATION and probe.observation.error is not None:
            return Assessment(standing=Classification.REFUSED, reason="refused", detail=found.detail)
        return found

    def _done(self, outcome: Outcome, reason: str, detail: str, *, first: bool = False) -> Done:
        """``first``: what objects is the first reply to each request, and the evidence is that."""
        asked = [reply for replies in self.probes.values() for reply in replies]
        facts = {
            "asked": len(asked),
            "crashed": sum(bool(_crash(assess(one.exchange, one.observation))) for one in asked),
            "controls": sum(map(len, self.between.values()))
            + len(self.plain)
            + len(self.after)
            + (self.control is not None),
            "first_try": self._first_try(outcome),
        }
        return Done(
            verdict=Verdict(
                case=self.case.id,
                sample=self.case.sample,
                outcome=outcome,
                reason=reason,
                detail=detail[:500],
                values=self.tally.values if self.tally else {},
                facts={**facts, **(self.tally.facts if self.tally else {})},
                evidence=self._evidence(detail, 0 if first else -1),
                scorer=self.scorer,
            )
        )

    def _first_try(self, outcome: Outcome) -> bool:
        """Whether nothing had to be asked twice, nor was wrong."""
        return outcome is Outcome.PASS and all(len(replies) == 1 for replies in self.probes.values())

    def _evidence(self, detail: str, which: int) -> tuple[Evidence, ...]:
        """The exchanges behind the verdict, one of each request; the excerpt stands with the last."""
        last = [replies[which] for replies in self.probes.values() if replies][-_EVIDENCE:]
        return tuple(
            Evidence(
                exchange=reply.exchange.identity.key,
                frame=reply.exchange.frames[-1].number if reply.exchange.frames else None,
                excerpt=detail[:400] if at == len(last) - 1 else "",
            )
            for at, reply in enumerate(last)
        )


def _all(functions: Mapping[str, Check], wanted: Mapping[str, Any], look: CheckInput) -> list[CheckProblem]:
    found: list[CheckProblem] = []
    for name, value in wanted.items():
        problem = functions[name](look, value)
        if problem is not None:
            found.append(problem)
    return found


def _urgency(step: Step) -> int:
    if isinstance(step, Done):
        return 0 if step.verdict.outcome is Outcome.FAIL else 2
    return 1


def _purpose(kind: str, name: str) -> str:
    return f"{kind}:{name}" if name else kind


def _count(found: Sequence[Assessment], standing: Classification) -> int:
    return sum(one.standing is standing for one in found)


def _crash(found: Assessment) -> str:
    """The kind of crash a verdict may name, or nothing where the standing is no crash of this request."""
    if found.standing is Classification.SERVER_ERROR or found.reason in ("http-502", "http-503", "http-504"):
        # a gateway's 5xx was retried before it came here: that it stays, between answered controls, is this request's
        # doing
        return "500"
    return {"first-byte-timeout": "hang", "idle-timeout": "hang", "cut": "cut", "reset": "cut"}.get(found.reason, "")


def _is_answered(reply: Answered) -> bool:
    return assess(reply.exchange, reply.observation).standing is Classification.ANSWERED
