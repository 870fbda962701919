"""The suite ``beam``: questions about long conversations (BEAM, arXiv 2510.27246), graded by a judge model item by
item.

The judge's calls are steps like any other: recorded, replayed, and asked again where they failed, without asking the
model again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import quote

from kvv.cases.answers import KeyEntry
from kvv.cases.confirm_refusal import is_refused, judge_repeated, once_more
from kvv.cases.judge_prompts import JudgePrompts
from kvv.cases.suite import Column, Context, Judge, Suite, SuiteKind
from kvv.core import (
    Answered,
    Area,
    Ask,
    Case,
    Dataset,
    Done,
    Evidence,
    History,
    Level,
    Outcome,
    Request,
    Role,
    Stat,
    Step,
    Verdict,
)
from kvv.profiles.profile import Sampling
from kvv.protocol.classify import Classification, assess, judge_unanswered
from kvv.suites.beam.history import BYTES_PER_TOKEN, budget_of, history_of
from kvv.suites.beam.history import ConversationHistory as Conversation
from kvv.suites.beam.judging import PRESET, PROMPT_SHA256, NoJudgement, Trouble, asked_question
from kvv.suites.beam.scoring import ORDERING, Scores, judge_prompts, moonshot, score

SOURCE = "https://github.com/mohammadtavakoli78/BEAM"

REQUIREMENT = "The answer to a question about a long conversation fulfils what its rubric asks."

SIZES = ("100K", "500K", "1M", "10M")
#: KVV calls the smallest size by the tokens that it has
ALIASES = {"128K": "100K"}

#: reasons after which the model's answer stands and only the judge is asked again
JUDGE_REASONS = frozenset({"judge-failed", Trouble.UNPARSABLE.value, "judge-off-scale"})


class BeamSuite(Suite):
    """One case per question; a conversation's questions share one serialised history and run back to back."""

    id = "beam"
    title = "BEAM (long memory)"
    kind = SuiteKind.BENCHMARK
    areas = (Area.ACCURACY,)
    version = "1"
    dataset = "beam"
    counted = "kvv_score"
    columns = (Column(suite="beam", title="BEAM 1M", edition="1M", whole=700, key="beam"),)
    column_title, column_rank, edition = "BEAM", 30, "size"
    kvv_sampling = Sampling(
        temperature=1.0,
        temperature_off=0.6,
        top_p=0.95,
        max_tokens=32_768,
        stream=False,
        expect_completion_tokens=2_000,
    )
    spread, graded = 0.4**2 * 0.2, True
    needs = ("judge",)

    def data_variant(self, variant: str) -> str:
        """A size; other suites' variants are not ours."""
        size = ALIASES.get(variant.upper(), variant.upper())
        if size in SIZES:
            return size
        if re.fullmatch(r"[0-9]+[KkMm]", variant):
            raise ValueError(f"{self.id} has no size {variant!r:.40}; known: {', '.join([*SIZES, *ALIASES])}")
        return ""

    def cases(self, context: Context) -> list[Case]:
        """Reads, counts and serialises every conversation once: seconds for a million tokens, so never on the event
        loop.
        """
        if context.dataset is None:
            return []
        return [case for row in context.dataset.rows for case in _cases_of(row, context)]

    def step(self, case: Case, history: History) -> Step:
        inputs = case.inputs
        if not history:
            return Ask(requests=(_target(inputs),))
        answered = _replies(history[0])[0]
        if is_refused(answered):
            if len(history) == 1:
                return once_more(_target(inputs))
            again, control = _replies(history[1])
            return Done(verdict=_in_its_room(case, judge_repeated(case, answered, again, control)))
        missing = judge_unanswered(case, answered)
        if missing is not None:
            return Done(verdict=_in_its_room(case, missing))
        answer = answered.observation.answer
        if "recorded" in inputs:
            return Done(verdict=_recorded(case, answered))
        own = JudgePrompts(**inputs["judge_prompts"]) if inputs.get("judge_prompts") else None
        prompts = judge_prompts(inputs["ability"], inputs["question"], inputs["rubric"], answer, own)
        if prompts and len(history) == 1:
            judges = [inputs["judge"], *filter(None, [inputs.get("second_judge")])]
            return Ask(requests=tuple(_judge_request(judge, prompt) for judge in judges for prompt in prompts))
        replies = _replies(history[1]) if prompts else ()
        verdict = _verdict(case, answered, replies[: len(prompts)])
        return Done(verdict=_agreed(case, answered, verdict, replies[len(prompts) :]))

    def kept_steps(self, verdict: Verdict) -> int:
        """An answer of the model stands when only its judge failed: a million tokens are not asked twice."""
        return 1 if verdict.reason in JUDGE_REASONS else 0

    def answer_key(self, dataset: Dataset) -> Sequence[KeyEntry]:
        """From the fixture's columns ``right`` and ``wrong``, for the questions and for what the judge is asked about
        these answers.
        """
        from kvv.suites.beam.key import key_entries

        return list(key_entries(self.id, dataset.rows, case_id))

    def metrics(self, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
        from kvv.suites.beam.rows import metrics

        return metrics(self.id, self.version, verdicts, context)


# --- cases -----------------------------------------------------------------------------------------


def case_id(row: Mapping[str, Any], question: Mapping[str, Any]) -> str:
    """``beam/1m/17/event_ordering-1``: the size is part of it, because ids repeat in every size."""
    size = quote(str(row["size"]).lower() or "other", safe="")
    return f"beam/{size}/{quote(row['chat_id'], safe='')}/{question['question_type']}-{question['question_index']}"


def _cases_of(row: Mapping[str, Any], context: Context) -> Iterator[Case]:
    settings, profile = context.settings, context.profile
    conversation = history_of(
        row["messages"],
        tokenizer=context.tokenizer,
        budget=budget_of(profile.context_window, settings.max_tokens),
        overheads=profile.tokens,
        thinking=bool(settings.thinking),
    )
    block = f"{row['size']}/{row['chat_id']}"
    for question in row["questions"]:
        text = question["question"]
        said = asked_question(text, moonshot=context.preset == PRESET, own=context.judge_prompts)
        asked = int(len(said.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN)
        ordering = question["question_type"] == ORDERING
        yield Case(
            id=case_id(row, question),
            suite=BeamSuite.id,
            area=Area.ACCURACY,
            level=Level.SHOULD,
            requirement=REQUIREMENT,
            source=SOURCE,
            since="0.1.0",
            cluster=block,
            inputs={
                "body": context.body([conversation.fragment, {"role": "user", "content": said}]),
                "stream": settings.stream,
                "block": block,
                "tokens": {"prompt": conversation.tokens + asked, "shared": conversation.tokens},
                "room": _room(conversation, asked, context),
                "history": {
                    "messages": conversation.messages,
                    "dropped": conversation.dropped,
                    "counted": conversation.counted,
                },
                "size": row["size"],
                "ability": question["question_type"],
                "question": text,
                "rubric": list(question["rubric"]),
                "answer": question["gold_answer"],
                "judge": None if context.judge is None else context.judge.fields(),
                "second_judge": None if context.second_judge is None else context.second_judge.fields(),
                **({"judge_prompts": asdict(context.judge_prompts)} if context.judge_prompts else {}),
                # an ordering is judged as a whole and, as often as it has lines, line by line
                "judge_calls": (len(question["rubric"]) + ordering) * (1 + (context.second_judge is not None)),
            },
        )


def _room(conversation: Conversation, asked: int, context: Context) -> str:
    """Whether a refusal can be blamed on the endpoint: KVV's budget does not count the template, and without a
    tokeniser nothing is cut.
    """
    most = conversation.most_tokens + 2 * asked + 200 + (context.settings.max_tokens or 0)
    return "fits" if most <= context.profile.context_window else "over" if conversation.counted else "unknown"


def _target(inputs: Mapping[str, Any]) -> Request:
    return Request(body=inputs["body"], stream=inputs["stream"], expect_prompt_tokens=inputs["tokens"]["prompt"])


def _judge_request(judge: Mapping[str, Any], prompt: str) -> Request:
    body = Judge.body(judge, prompt)
    return Request(body=body, role=Role.JUDGE, purpose="judge", expect_prompt_tokens=len(prompt) // 4)


# --- verdicts --------------------------------------------------------------------------------------


def _replies(reply: Any) -> tuple[Answered, ...]:
    assert isinstance(reply, tuple)
    return reply


def _in_its_room(case: Case, verdict: Verdict) -> Verdict:
    """A refusal of a prompt that may not fit is no refusal of a valid request."""
    room = case.inputs.get("room", "fits")
    if verdict.outcome is not Outcome.FAIL or room == "fits":
        return verdict
    counted = "with the template's tokens and max_tokens it exceeds the context"
    why = "the conversation was not counted (--tokenizer)" if room == "unknown" else counted
    return replace(
        verdict, outcome=Outcome.INCONCLUSIVE, reason="context-may-not-fit", detail=f"{why}: {verdict.detail}"[:500]
    )


def _verdict(case: Case, answered: Answered, judged: Sequence[Answered]) -> Verdict:
    """PASS where KVV's rule gives the whole point. A judge that failed or cannot be read leaves the sample
    INCONCLUSIVE, never 0.
    """
    inputs, observation = case.inputs, answered.observation
    for number, reply in enumerate(judged, 1):
        found = assess(reply.exchange, reply.observation)
        if found.standing is not Classification.ANSWERED:
            detail = f"judgement {number} of {len(judged)}: {found.reason} {found.detail}"
            return _unjudged(case, answered, reply, "judge-failed", detail, len(judged))
        if _cut(reply):
            detail = f"judgement {number} of {len(judged)} was cut at its length"
            return _unjudged(case, answered, reply, Trouble.UNPARSABLE.value, detail, len(judged))
    replies = [reply.observation.answer for reply in judged]
    theirs = {"moonshot": moonshot(inputs["ability"], inputs["rubric"], observation.answer, replies)}
    try:
        scores = score(inputs["ability"], inputs["rubric"], observation.answer, replies)
    except NoJudgement as error:
        unjudged = _unjudged(case, answered, judged[0], error.trouble.value, str(error), len(judged))
        return replace(unjudged, values=theirs)
    return _concluded(case, answered, scores.values() | theirs, _facts(case, answered, len(judged)) | scores.facts())


def _cut(answered: Answered) -> bool:
    """Whether the answer ended at its token limit: what it would have said is not known."""
    return answered.observation.finish_reason == "length"


def _agreed(case: Case, answered: Answered, verdict: Verdict, judged: Sequence[Answered]) -> Verdict:
    """The verdict is the first judge's; what the second one says stands beside it, where it said something."""
    if not judged or not verdict.values:
        return verdict
    second: dict[str, Any] = {}
    try:
        if all(
            assess(reply.exchange, reply.observation).standing is Classification.ANSWERED and not _cut(reply)
            for reply in judged
        ):
            replies = [reply.observation.answer for reply in judged]
            second = dict(
                score(case.inputs["ability"], case.inputs["rubric"], answered.observation.answer, replies).values()
            )
    except NoJudgement:
        pass
    return replace(verdict, facts={**verdict.facts, "judge_calls": 2 * len(judged), "second_judge": second or None})


def _concluded(case: Case, answered: Answered, values: Mapping[str, float], facts: Mapping[str, Any]) -> Verdict:
    right, some = values["kvv_score"] >= 1.0, max(values.get(name, 0.0) for name in Scores.NAMES) > 0
    empty = not answered.observation.answer.strip()
    return Verdict(
        case=case.id,
        sample=case.sample,
        outcome=Outcome.PASS if right else Outcome.FAIL,
        reason="" if right else "empty-answer" if empty else "partly-right" if some else "wrong-answer",
        values=values,
        facts=facts,
        evidence=() if right else (Evidence(exchange=answered.exchange.identity.key),),
        scorer=BeamSuite.version,
        truncated=_cut(answered),
    )


def _unjudged(case: Case, answered: Answered, reply: Answered, reason: str, detail: str, calls: int) -> Verdict:
    return Verdict(
        case=case.id,
        sample=case.sample,
        outcome=Outcome.INCONCLUSIVE,
        reason=reason,
        detail=detail[:500],
        facts=_facts(case, answered, calls),
        evidence=(Evidence(exchange=reply.exchange.identity.key, excerpt=reply.observation.answer[:300]),),
        scorer=BeamSuite.version,
        truncated=_cut(answered),
    )


def _facts(case: Case, answered: Answered, calls: int) -> dict[str, Any]:
    return {
        "ability": case.inputs["ability"],
        "judge_calls": calls,
        "finish_reason": answered.observation.finish_reason,
        "messages_dropped": case.inputs["history"]["dropped"],
    }


def _recorded(case: Case, answered: Answered) -> Verdict:
    """An imported answer with the scores of another judge; without any it has no conclusion."""
    recorded: Mapping[str, Any] = case.inputs["recorded"]
    facts = _facts(case, answered, 0) | {"recorded": dict(recorded)}
    if recorded.get("kvv_score") is None:
        reason = str(recorded.get("reason") or "no-score")
        return _unjudged(
            case, answered, answered, reason, str(recorded.get("detail") or "the score file has no line for it"), 0
        )
    values = {name: float(recorded[name]) for name in Scores.NAMES if recorded.get(name) is not None}
    return _concluded(case, answered, values, facts)


__all__ = ["PROMPT_SHA256", "BeamSuite", "case_id"]
