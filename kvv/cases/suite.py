"""What a suite is, and the registry of suites.

A suite is data and pure functions: it opens no file, socket, clock or random source. The engine hands it a
``Context``; it answers with cases, steps (sans-IO) and metrics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any, ClassVar

from kvv.cases.answers import KeyEntry
from kvv.cases.confirm_refusal import is_refused, judge_repeated, once_more
from kvv.cases.judge_prompts import JudgePrompts
from kvv.core import Answered, Area, Ask, Case, Dataset, Done, History, Level, Reply, Request, Stat, Step, Verdict
from kvv.core.plugins import SUITES, find_entry_points
from kvv.core.usage_error import ConfigError
from kvv.profiles.profile import Profile, Sampling
from kvv.profiles.token_counts import Tokenizer
from kvv.protocol.classify import judge_unanswered


class SuiteKind(StrEnum):
    PRE_CHECK = "gate"  # the stored word is older
    CONTRACT = "contract"
    BENCHMARK = "benchmark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is sent for one suite after profile, preset, tier and flags were laid over each other."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stream: bool = True
    samples: int = 1
    thinking: bool | None = None
    think_mode: str | None = None
    effort: str | None = None
    variant: str = ""
    expect_completion_tokens: int = 2_000
    extra_body: Mapping[str, Any] = field(default_factory=dict)


#: the value of a reference's sample whose request was refused
REFUSED = "request_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun:
    """Per-case results of one earlier run: case id -> the ``values`` of each of its samples, in order.

    A sample without a conclusion is empty, one whose request was refused has the value ``REFUSED`` alone.
    """

    name: str
    model: str
    cases: Mapping[str, Sequence[Mapping[str, float]]]


def overlap(known: Collection[str], cases: Collection[str]) -> float:
    """The share of ``cases`` that are ``known``, 0 to 1; 1 for no cases at all."""
    wanted = set(cases)
    return len(wanted & set(known)) / len(wanted) if wanted else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The model that grades answers, and what it is sent. None leaves a field out of the request; ``extra_body`` goes
    over everything, ``effort`` is what it says of one, for people.
    """

    model: str
    temperature: float | None = None
    max_tokens: int | None = None
    effort: str = ""
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """JSON-like, for a case's inputs and for the report."""
        found: dict[str, Any] = {
            "model": self.model,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        if self.effort:
            found["effort"] = self.effort
        return found | ({"extra_body": dict(self.extra_body)} if self.extra_body else {})

    @staticmethod
    def body(fields: Mapping[str, Any], prompt: str) -> dict[str, Any]:
        """A chat-completions body of one user message."""
        body = {"model": fields["model"], "messages": [{"role": "user", "content": prompt}]}
        body |= {name: fields[name] for name in ("temperature", "max_tokens")} | fields.get("extra_body", {})
        return {name: value for name, value in body.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything a suite may know. ``keyed``: requests carry a key, and it alone tells who is asking. ``agent`` and
    ``grader``: another program's name and version, "" for the suite's own."""

    model: str
    profile: Profile
    settings: Settings
    tier: str = "smoke"
    preset: str = ""
    dataset: Dataset | None = None
    references: Sequence[ReferenceRun] = ()
    seed: int = 0
    other_model: str = ""
    keyed: bool = False
    tokenizer: Tokenizer | None = None
    judge: Judge | None = None
    second_judge: Judge | None = None
    judge_prompts: JudgePrompts | None = None
    agent: str = ""
    grader: str = ""

    def body(self, messages: Sequence[Any], **fields: Any) -> dict[str, Any]:
        """A chat-completions body with this suite's model, sampling and thinking switch; ``fields`` go over them.

        A field whose value is None is left out; ``extra_body`` goes over everything.
        """
        settings = self.settings
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        body |= {"temperature": settings.temperature, "top_p": settings.top_p, "max_tokens": settings.max_tokens}
        body |= self.profile.thinking_body(on=settings.thinking, effort=settings.effort, mode=settings.think_mode)
        if settings.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= fields
        body |= settings.extra_body
        return {key: value for key, value in body.items() if value is not None}

    def sampling(self) -> dict[str, Any]:
        """What was sent, for a row's comparability; None is the endpoint's own default."""
        settings = self.settings
        sent = {"temperature": settings.temperature, "top_p": settings.top_p, "max_tokens": settings.max_tokens}
        return {**sent, "stream": settings.stream, "samples": settings.samples}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A concluded sample; ``replies`` reads all that its steps gave."""

    case: Case
    verdict: Verdict
    replies: Callable[[], Sequence[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A public set on the leaderboard: of one suite's sets the one with this ``edition`` ("" where it has only one).

    ``whole``: its questions, 0 where unknown; ``key``: the column's name in published rows (``profiles/published``).
    """

    suite: str
    title: str
    edition: str = ""
    whole: int = 0
    key: str = ""

    @property
    def id(self) -> str:
        return f"{self.suite}/{self.edition}" if self.edition else self.suite


class Suite(ABC):
    """Base of every suite. ``version`` is the scorer's version: raise it when a verdict could change."""

    id: ClassVar[str]
    title: ClassVar[str]
    kind: ClassVar[SuiteKind]
    areas: ClassVar[tuple[Area, ...]]
    version: ClassVar[str] = "1"
    #: judged in a worker process that is killed after this many seconds; None judges in the engine's own process
    judge_timeout_s: ClassVar[float | None] = None
    #: libraries that the judge needs: a worker imports them before its clock starts
    judge_imports: ClassVar[tuple[str, ...]] = ()
    #: name of the data set's entry in data.py's table, None for suites without data
    dataset: ClassVar[str | None] = None
    #: the suite runs without data too; a data set is read only when ``--data`` names one
    dataset_optional: ClassVar[bool] = False
    #: the row whose hits the reference endpoint counts too, on shipped data
    counted: ClassVar[str] = ""
    #: what the suite needs beside the endpoint: "judge", "sandbox"
    needs: ClassVar[tuple[str, ...]] = ()
    #: its public sets on the leaderboard
    columns: ClassVar[tuple[Column, ...]] = ()
    #: what its other columns are called before the edition; None takes the id
    column_title: ClassVar[str | None] = None
    #: place among the leaderboard's columns, from the left
    column_rank: ClassVar[int] = 100
    #: the entry of a row's comparability that says which of several public sets was asked, "" where there is one
    edition: ClassVar[str] = ""
    #: what ``--preset moonshot`` sends whatever the profile recommends; None for a suite that KVV does not have
    kvv_sampling: ClassVar[Sampling | None] = None
    #: where KVV sends a model something of its own: profile -> max_tokens
    kvv_max_tokens: ClassVar[Mapping[str, int]] = {}
    #: variance of one sample of one question, p(1-p)(1-rho), for forecasts where official runs do not show it
    spread: ClassVar[float] = 0.8 * 0.2 * 0.5
    #: scores lie between right and wrong
    graded: ClassVar[bool] = False
    #: values of its verdicts that are counts, not scores from 0 to 1
    counts: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def cases(self, context: Context) -> Sequence[Case]:
        """Every case once, with ``sample`` 0; the planner repeats a benchmark's cases ``settings.samples`` times."""

    def data_variant(self, variant: str) -> str:
        """Which variant of its data set ``--variant`` asks for, "" for the default one. ValueError for a variant that
        the suite does not know.

        One ``--variant`` is for all suites of a run: those that have no variants ignore it.
        """
        return ""

    def samples(self, case: Case, context: Context) -> int:
        """How often this case is asked."""
        return context.settings.samples

    def bodies(self, case: Case) -> Iterable[Any]:
        """What the case will send, as far as it is known beforehand: the plan's estimate of prompt tokens is made from
        it.
        """
        return (case.inputs.get("body"),)

    @abstractmethod
    def step(self, case: Case, history: History) -> Step:
        """The next thing to do, given every reply so far. Pure: replay calls it with stored replies."""

    def kept_steps(self, verdict: Verdict) -> int:
        """How many leading steps of an INCONCLUSIVE sample stand when it is asked again; 0 begins anew."""
        return 0

    def answer_key(self, dataset: Dataset) -> Sequence[KeyEntry]:
        """What the reference endpoint answers to this data set's prompts, right and wrong; [] where it needs no key."""
        return ()

    def files(self, results: Iterable[Result], context: Context) -> Iterable[tuple[str, str]]:
        """Further files of a run's folder: path below it, and text."""
        return ()

    @abstractmethod
    def metrics(self, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
        """One row per metric, exactly one of them primary; [] for suites judged case by case."""


class SingleTurn(Suite):
    """A benchmark of one request a case and one judgement. A refusal is asked about once more.

    ``requirement``: one sentence that every case shares; ``source``: where the data set's rules stand.
    """

    kind = SuiteKind.BENCHMARK
    areas = (Area.ACCURACY,)
    requirement: ClassVar[str]
    source: ClassVar[str]

    def case(self, case_id: str, context: Context, body: Mapping[str, Any], **inputs: Any) -> Case:
        """A case of its own cluster. ``inputs`` are the judge's, and may hold ``prompt_tokens`` (an estimate) and
        ``stratum``.
        """
        return Case(
            id=case_id,
            suite=self.id,
            area=Area.ACCURACY,
            level=Level.SHOULD,
            requirement=self.requirement,
            source=self.source,
            since="0.1.0",
            cluster=case_id,
            inputs={"body": body, "stream": context.settings.stream, **inputs},
        )

    def request(self, case: Case) -> Request:
        inputs = case.inputs
        return Request(
            body=inputs["body"], stream=inputs["stream"], expect_prompt_tokens=inputs.get("prompt_tokens", 0)
        )

    @abstractmethod
    def judge(self, case: Case, answered: Answered) -> Verdict:
        """Called only for an answered completion; what else may come back is judged by the outcome table."""

    def step(self, case: Case, history: History) -> Step:
        if not history:
            return Ask(requests=(self.request(case),))
        (first,), *more = (reply for reply in history if isinstance(reply, tuple))
        if is_refused(first):
            return Done(verdict=judge_repeated(case, first, *more[0])) if more else once_more(self.request(case))
        return Done(verdict=judge_unanswered(case, first) or self.judge(case, first))


@cache
def built_in() -> tuple[str, ...]:
    """Ids of the suites that ship, in the order of the report: each folder's ``ORDER``. Imports no suite."""
    return tuple(sorted((name for name in _folders() if _order(name) is not None), key=lambda n: (_order(n), n)))


def is_inner(name: str) -> bool:
    """A suite that a verb of its own asks; no run selects it and no list shows it."""
    return name in _folders() and _order(name) is None


@cache
def _folders() -> frozenset[str]:
    return frozenset(entry.name for entry in files("kvv.suites").iterdir() if entry.joinpath("suite.py").is_file())


def _order(name: str) -> int | None:
    order: int | None = import_module(f"kvv.suites.{name}").ORDER
    return order


class SuiteError(ConfigError):
    """A suite that does not exist; the message is one line."""


def load_suite(name: str) -> Suite:
    """The suite with this id, built in or registered under the entry-point group ``kvv.suites``."""
    if name in built_in() or is_inner(name):
        return _shipped(name)()
    if name in (found := load_plugins()[0]):
        return found[name]()
    raise SuiteError(f"no suite {name!r}; known: {', '.join(suite_ids())}")


def suite_ids() -> list[str]:
    return [*built_in(), *sorted(load_plugins()[0])]


def declared(name: str) -> Suite | type[Suite]:
    """The suite, or what every suite declares where it is not installed: stored results may name any."""
    try:
        return load_suite(name)
    except SuiteError:
        return Suite


@cache
def _shipped(name: str) -> type[Suite]:
    """The class of this id in the folder's ``suite.py``."""
    module = import_module(f"kvv.suites.{name}.suite")
    classes = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Suite)]
    return next(each for each in classes if getattr(each, "id", "") == name)


@cache
def load_plugins() -> tuple[Mapping[str, Callable[[], Suite]], Sequence[str]]:
    """What makes other packages' suites, by id; and one line for each plug-in that cannot be used, which everybody does
    without.
    """
    found: dict[str, Callable[[], Suite]] = {}
    entries, broken = find_entry_points(SUITES)
    for entry in entries:
        try:
            make = entry.load()
            why = _unfit(entry.name, make())
        except (Exception, SystemExit) as error:  # noqa: BLE001 another package's code may raise anything
            why = f"{type(error).__name__}: {error}"
        if not why and entry.name in {*built_in(), *found}:
            why = "there is another suite of this name"
        if why:
            broken.append(f"plug-in {entry.name!r} ({entry.value}): {why}")
        else:
            found[entry.name] = make
    return found, broken


def _unfit(name: str, made: object) -> str:
    if not isinstance(made, Suite):
        return f"it gives a {type(made).__name__}, not a kvv.cases.suite.Suite"
    absent = [each for each in ("id", "title", "kind", "areas") if not hasattr(made, each)]
    if absent:
        return f"its suite has no {absent[0]!r}"
    return "" if made.id == name else f"its suite has the id {made.id!r}"
