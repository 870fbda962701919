"""The suite ``toolcall``: K2VV's tool-call requests, judged for when the model calls and whether its calls fit their
schemas.

Sources: MoonshotAI/K2-Vendor-Verifier (request form, trigger F1, schema accuracy). Beyond K2VV: failed requests stay
counted, each failed call has one class, and the decision to call is also read from the calls themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvv.cases.answers import KeyEntry
from kvv.cases.suite import Context, SingleTurn
from kvv.core import Answered, Case, Dataset, Evidence, Outcome, Stat, Verdict
from kvv.profiles.profile import Sampling
from kvv.suites.toolcall.expected import key_entries
from kvv.suites.toolcall.k2vv import (
    CONTENT_FIELDS,
    SAMPLING_FIELDS,
    K2vvRequest,
    canonical,
    needs_k2_ids,
    questions,
    unsent_fields,
    with_k2_ids,
)
from kvv.suites.toolcall.schema import DEFAULT_DRAFT, Failure
from kvv.suites.toolcall.scoring import score, tool_markers

#: for limits and time-outs only
BYTES_PER_TOKEN = 4


class ToolcallSuite(SingleTurn):
    """One case per distinct request; a request that stands several times in the data is asked that often."""

    id = "toolcall"
    title = "Tool calls (K2VV form)"
    requirement = (
        "The model calls a tool when the official endpoint does, and every call names a declared tool with arguments"
        " that fit its schema."
    )
    source = "https://github.com/MoonshotAI/K2-Vendor-Verifier"
    version = "1"
    judge_timeout_s = 10.0
    dataset = "toolcall"
    counted = "trigger_f1"
    counts = frozenset({"calls", "valid_calls", "unusable_calls", "ambiguous_calls"})
    column_title, column_rank = "Tool-call F1", 60
    kvv_sampling = Sampling(
        temperature=1.0, temperature_off=0.6, top_p=0.95, max_tokens=64_000, expect_completion_tokens=800
    )

    def cases(self, context: Context) -> list[Case]:
        """RowError (a DataError) names a row that is no request."""
        if context.dataset is None:
            return []
        data = context.dataset.rows
        markers = list(tool_markers(context.profile.markers))
        return [
            self.case(
                question.case,
                context,
                _body(question, data[question.rows[0]], context),
                occurrences=len(question.rows),
                prompt_tokens=len(canonical(question.content)) // BYTES_PER_TOKEN,
                rows=[number + 1 for number in question.rows],
                markers=markers,
                stratum="after calls" if _has_calls(question) else "fresh",
            )
            for question in questions(data)
        ]

    def samples(self, case: Case, context: Context) -> int:
        """Occurrence k of a request is sample k of the first round, sample k + occurrences of the second, and so on."""
        occurrences: int = case.inputs["occurrences"]
        return occurrences * context.settings.samples

    def judge(self, case: Case, answered: Answered) -> Verdict:
        """FAIL when a call failed by the endpoint's fault, INCONCLUSIVE when only a broken schema of the data set is in
        the way.

        An answer without calls is a PASS: whether it should have called is a matter of the suite's rows.
        """
        scored = score(case.inputs["body"], answered.observation, case.inputs["markers"])
        outcome, decisive = Outcome.PASS, None
        if scored.own_failures:
            outcome, decisive = Outcome.FAIL, scored.own_failures[0]
        elif scored.failures:
            outcome, decisive = Outcome.INCONCLUSIVE, scored.failures[0]
        return Verdict(
            case=case.id,
            sample=case.sample,
            outcome=outcome,
            reason=decisive.failure.value if decisive else "",
            detail=_sentence(decisive) if decisive else "",
            values=scored.values(),
            facts=scored.facts(),
            evidence=(
                (Evidence(exchange=answered.exchange.identity.key, excerpt=_sentence(decisive)),) if decisive else ()
            ),
            scorer=self.version,
            truncated=scored.finish_reason == "length",
        )

    def answer_key(self, dataset: Dataset) -> list[KeyEntry]:
        """From the fixture's column ``expected``; rows without it have no entry."""
        return list(key_entries(self.id, dataset.rows))

    def metrics(self, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
        # here and not above: the worker processes that judge import this module in their time limit and need no scipy
        from kvv.suites.toolcall import rows
        from kvv.suites.toolcall.confusion import read_samples

        samples = read_samples(verdicts)
        facts = _comparability(self.version, context)
        return [
            rows.trigger_row(samples, context, facts, metric="trigger_f1", key="triggered", primary=True),
            rows.trigger_row(samples, context, facts, metric="trigger_f1_calls", key="called"),
            rows.schema_row(samples, facts),
            rows.call_row(samples, facts),
            rows.unconditional_row(samples, context, facts),
            *rows.official_rows(samples, context, facts),
        ]


def _sentence(failure: Failure) -> str:
    where = f" at {failure.path} ({failure.keyword})" if failure.keyword else ""
    return f"{failure.tool or 'answer'}{where}: {failure.message}"


def _has_calls(question: K2vvRequest) -> bool:
    return any(message.get("tool_calls") for message in question.content["messages"])


def _body(question: K2vvRequest, row: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """The row's content with the run's model, sampling and thinking switch; the row's own sampling where the run sets
    none.
    """
    fields = {name: value for name, value in question.content.items() if name != "messages"}
    for name in SAMPLING_FIELDS:
        if getattr(context.settings, name) is None and row.get(name) is not None:
            fields[name] = row[name]
    messages = question.content["messages"]
    if needs_k2_ids(context.profile.claims):
        messages = with_k2_ids(messages)
    return context.body(messages, **fields)


def _comparability(version: str, context: Context) -> dict[str, Any]:
    """What a reader needs to set these rows beside another run's."""
    dataset = context.dataset
    return {
        "data_revision": dataset.revision if dataset else None,
        "sampling": {name: "row" if value is None else value for name, value in context.sampling().items()},
        "preset": context.preset,
        "scorer_version": version,
        "failures_in_denominator": (
            "a failed request is in n_planned and in both bounds, not in the value; "
            "a refused valid request counts as a disagreement; kvv_value leaves both out, as K2VV does"
        ),
        "references": [reference.name for reference in context.references],
        "row_fields_sent": list(CONTENT_FIELDS),
        "row_fields_not_sent": unsent_fields(dataset.rows) if dataset else [],
        "tool_ids": "renamed to functions.name:index" if needs_k2_ids(context.profile.claims) else "as in the rows",
        "same_tool_twice": "the last declaration counts; kvv_value takes the first, as K2VV does",
        "schema_draft": f"by $schema, else {DEFAULT_DRAFT}; format not asserted; remote references refused",
    }
