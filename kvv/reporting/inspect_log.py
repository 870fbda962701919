"""A stored benchmark as a log that inspect-ai reads (``read_eval_log``, ``inspect view``), made with its own classes.

A sample's score is ours under each name of ``values``; a sample without a conclusion has an error and no score, as in
inspect. Pictures stand in the messages; what would exceed ``MESSAGE_LIMIT`` is cut and says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kvv.core import Case, Outcome, Role, Stat, Verdict
from kvv.core.usage_error import ConfigError
from kvv.protocol.classify import is_probe
from kvv.storage.files import replace_file
from kvv.storage.store import Store, StoredExchange
from kvv.storage.view import RunView

#: characters of one message; a conversation of a million tokens belongs into no viewer
MESSAGE_LIMIT = 2_000_000
MESSAGES = 400
#: finish_reason -> inspect's stop_reason, which knows no others
STOPS: Mapping[str | None, Any] = {
    "stop": "stop",
    "length": "max_tokens",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}


def write_inspect_log(store: Store, view: RunView, suite: str, path: Path) -> int:
    """Writes the log; the number of its samples. ConfigError where inspect-ai is missing or ``path`` cannot be
    written.
    """
    try:
        from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSpec, EvalStats, write_eval_log
    except ImportError:
        raise ConfigError("export inspect: needs the package inspect-ai (pip install 'kvv[inspect]')") from None
    cases = list(store.cases(suite))
    samples = [_sample(store, view, case, number) for case, planned in cases for number in range(planned)]
    rows = [stat for stat in view.decision.stats if stat.suite == suite]
    spec = EvalSpec(
        created=view.run.started.replace("Z", "+00:00"),
        task=suite,
        task_version=_version(view, suite),
        dataset=EvalDataset(name=suite, samples=len(cases), sample_ids=[case.id for case, _ in cases], shuffled=False),
        model=f"openai/{view.endpoint.model}",
        config=EvalConfig(epochs=max((planned for _, planned in cases), default=1)),
        run_id=view.run.run_id,
        metadata={"kvv_run": view.run.run_id, "preset": view.run.preset or None, "profile": view.profile},
    )
    concluded = sum(sample.error is None for sample in samples)
    log = EvalLog(
        version=2,
        status="success",
        eval=spec,
        results=EvalResults(total_samples=len(samples), completed_samples=concluded, scores=_scores(rows)),
        stats=EvalStats(),
        samples=samples,
    )
    try:
        # inspect writes where it is told to; the folder may hold a link of this name
        with TemporaryDirectory(prefix="kvv-export-") as made:
            write_eval_log(log, str(Path(made) / "log.eval"), format="eval")
            replace_file(path, (Path(made) / "log.eval").read_bytes())
    except OSError as error:
        raise ConfigError(f"--to: cannot write {path}: {error.strerror or error}") from error
    return len(samples)


def _version(view: RunView, suite: str) -> str:
    said = next((stat.comparability for stat in view.decision.stats if stat.suite == suite and stat.primary), {})
    return str(said.get("scorer_version") or "0")


def _scores(rows: Sequence[Stat]) -> list[Any]:
    from inspect_ai.log import EvalMetric, EvalScore

    return [
        EvalScore(
            name=stat.metric,
            scorer=f"kvv/{stat.metric}",
            scored_samples=stat.n_concluded,
            unscored_samples=stat.n_inconclusive,
            metrics={"mean": EvalMetric(name="mean", value=stat.estimate)},
            metadata={"interval95": list(stat.interval) if stat.interval else None, "kvv_value": stat.kvv_value},
        )
        for stat in rows
        if stat.estimate is not None
    ]


def _sample(store: Store, view: RunView, case: Case, number: int) -> Any:
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

    verdict = store.verdict(case.id, number)
    stored = _asked(store, case.id, number)
    messages = [] if stored is None else [*_messages(stored)]
    output, answer = ModelOutput(model=view.endpoint.model), ""
    if stored is not None and stored.observation.choices:
        answer = stored.observation.answer
        output = _output(stored, view.endpoint.model)
    scored = verdict is not None and verdict.outcome in (Outcome.PASS, Outcome.FAIL)
    return EvalSample(
        id=case.id,
        epoch=number + 1,
        input=messages or case.requirement,
        target=_target(case),
        messages=[*messages, *(choice.message for choice in output.choices)],
        output=output,
        scores={
            name: Score(value=value, answer=answer[:300], explanation=_because(verdict))
            for name, value in verdict.values.items()
        }
        if verdict is not None and scored
        else None,
        metadata=_metadata(case, verdict),
        error=None if scored else EvalError(message=_because(verdict), traceback="", traceback_ansi=""),
    )


def _asked(store: Store, case: str, number: int) -> StoredExchange | None:
    """The last attempt of the first question to the model: an agent's later turns are not a sample's output."""
    found = None
    for stored in store.exchanges(case, number):
        exchange = stored.exchange
        if exchange.role is Role.TARGET and exchange.identity.step == 0 and not is_probe(exchange.identity.purpose):
            found = stored
    return found


def _because(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not asked"
    return ": ".join(part for part in (verdict.reason, verdict.detail) if part) or verdict.outcome.value


def _target(case: Case) -> str | list[str]:
    inputs = case.inputs
    if isinstance(inputs.get("answers"), list):
        return [str(answer) for answer in inputs["answers"]]
    return str(inputs.get("answer") or "")


def _metadata(case: Case, verdict: Verdict | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: case.inputs[name]
        for name in ("options", "question_type", "dataset", "subject", "ability")
        if name in case.inputs
    }
    if verdict is not None:
        found |= {
            "outcome": verdict.outcome.value,
            "reason": verdict.reason,
            "facts": json.loads(json.dumps(dict(verdict.facts), default=str)),
        }
    return found


def _messages(stored: StoredExchange) -> Iterator[Any]:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    kinds: Mapping[str, Any] = {"system": ChatMessageSystem, "assistant": ChatMessageAssistant}
    try:
        body = json.loads(stored.body)
    except (ValueError, RecursionError):
        return
    said = body.get("messages") if isinstance(body, dict) else None
    listed = [message for message in said if isinstance(message, dict)] if isinstance(said, list) else []
    if len(listed) > MESSAGES:
        yield ChatMessageUser(content=f"[the first {len(listed) - MESSAGES:,} messages are left out]")
    for message in listed[-MESSAGES:]:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        kind = kinds.get(str(message.get("role")), ChatMessageUser)
        yield kind(content=[found for part in parts if isinstance(part, dict) and (found := _part(part)) is not None])


def _part(part: Mapping[str, Any]) -> Any:
    from inspect_ai.model import ContentImage, ContentText

    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    if isinstance(url, str) and url.startswith("data:image/"):
        return ContentImage(image=url)
    return ContentText(text=_cut(part["text"])) if isinstance(part.get("text"), str) else None


def _cut(text: str) -> str:
    left = len(text) - MESSAGE_LIMIT
    return text if left <= 0 else f"{text[:MESSAGE_LIMIT]}\n[{left:,} further characters are left out]"


def _output(stored: StoredExchange, model: str) -> Any:
    from inspect_ai.model import (
        ChatCompletionChoice,
        ChatMessageAssistant,
        ContentReasoning,
        ContentText,
        ModelOutput,
        ModelUsage,
    )

    said = stored.observation
    content: list[Any] = [ContentReasoning(reasoning=_cut(said.reasoning))] if said.reasoning else []
    content.append(ContentText(text=_cut(said.answer)))
    sent, made = (said.tokens(name) or 0 for name in ("prompt_tokens", "completion_tokens"))
    return ModelOutput(
        model=said.model or model,
        choices=[
            ChatCompletionChoice(
                message=ChatMessageAssistant(content=content, source="generate"),
                stop_reason=STOPS.get(said.finish_reason, "unknown"),
            )
        ],
        usage=ModelUsage(input_tokens=sent, output_tokens=made, total_tokens=sent + made),
        time=stored.exchange.timing.total_ms / 1000
        if stored.exchange.timing and stored.exchange.timing.total_ms
        else None,
    )
