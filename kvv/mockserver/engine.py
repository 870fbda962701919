"""One exchange from a parsed body to an HTTP reply, with the active faults applied on the way. No I/O happens here."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kvv.mockserver import faults as catalogue
from kvv.mockserver import render
from kvv.mockserver.config import JsonObject, KeyedAnswer, MockConfig
from kvv.mockserver.content import scripted, sight
from kvv.mockserver.content.answers import AnswerKey, Asks, Drawn, Stats, draw
from kvv.mockserver.content.completion import DraftChoice, Usage, apply_limits
from kvv.mockserver.content.compose import AnswerSetting, Draft, compose, with_bias, with_minimum
from kvv.mockserver.content.prompt import PrefixCache, Rendering, render_prompt
from kvv.mockserver.content.tokens import token_id, tokenize
from kvv.mockserver.errors import ApiError, error_body
from kvv.mockserver.faults.model import Respond, ServerFault, Turn
from kvv.mockserver.faults.selection import select
from kvv.mockserver.validation.body import read_request
from kvv.mockserver.validation.request import ChatRequest
from kvv.mockserver.variant import VARIANTS
from kvv.mockserver.wire import DONE, EVENT_STREAM, HttpReply, Part, Wait, event, json_reply

DEFAULT_MAX_TOKENS = 131_072
_MAX_SHOWN_IDS = 200_000


@dataclass(slots=True, kw_only=True)
class MockOutcome:
    """A reply and what to account for once it was sent or was not."""

    reply: HttpReply
    drawn: Drawn | None = None
    asked: tuple[str, int] | None = None
    settled: bool = False


class MockEngine:
    """The server's state over its requests. Methods may be called from several threads."""

    def __init__(self, config: MockConfig) -> None:
        if config.variant not in VARIANTS:
            raise ValueError(f"unknown variant {config.variant!r}")
        self.config = config
        self.variant = VARIANTS[config.variant]
        self.stats = Stats()
        self.active = 0
        #: by the answer's id: when its first two parts and its last were handed over, where that is asked for
        self.stamps: dict[str, list[float]] = {}
        self._selected = select(config.faults, catalogue.ALL)
        self.dwell_s = max((selected.fault.dwell_s for selected in self._selected), default=0.0)
        self._key = AnswerKey(config.answers)
        self._asks = Asks()
        self._cache = PrefixCache()
        self._memory: dict[str, Any] = {}
        self._ordinals = itertools.count()
        self._shown_ids: dict[int, str] = {}

    def new_turn(self, body: JsonObject, client: str) -> tuple[Turn, tuple[ServerFault, ...]]:
        """The next exchange and the faults that act on it."""
        turn = Turn(
            config=self.config,
            variant=self.variant,
            ordinal=next(self._ordinals),
            active=self.active,
            body=body,
            memory=self._memory,
            client=client,
        )
        return turn, tuple(selected.fault for selected in self._selected if selected.acts_on(turn))

    def answer(self, parsed: Any, refused: ApiError | None = None, *, client: str = "") -> MockOutcome:
        """The reply to a parsed body; ``refused`` is set when there is none because parsing or the key check failed."""
        turn, faults = self.new_turn(parsed if isinstance(parsed, dict) else {}, client)
        outcome = MockOutcome(reply=json_reply({}))
        try:
            if refused is not None:
                raise refused
            outcome.reply = self._complete(turn, faults, parsed, outcome)
        except ApiError as error:
            outcome.reply = self._error(turn, faults, error)
        except Respond as respond:
            outcome.reply = respond.reply
        for fault in faults:
            if fault.on_reply is not None:
                outcome.reply = fault.on_reply(turn, outcome.reply)
        return outcome

    def settle(self, outcome: MockOutcome) -> None:
        """Account for an outcome whose last bytes are about to be sent."""
        outcome.settled = True
        self.stats.status(outcome.reply.status)
        if outcome.asked is None:
            return
        if outcome.reply.status == 200:
            self.stats.delivered(outcome.drawn)
        else:
            self._asks.give_back(*outcome.asked)

    def undelivered(self, outcome: MockOutcome) -> None:
        """Take back what was accounted for, since the client went away, and free its draw for the next ask."""
        if not outcome.settled:
            self.stats.status(outcome.reply.status)
        elif outcome.reply.status != 200:
            return
        if outcome.asked is None:
            return
        if outcome.settled:
            self.stats.revoked(outcome.drawn)
        self._asks.give_back(*outcome.asked)

    def _error(self, turn: Turn, faults: tuple[ServerFault, ...], error: ApiError) -> HttpReply:
        for fault in faults:
            if fault.on_error is not None:
                changed = fault.on_error(turn, error)
                if isinstance(changed, HttpReply):
                    return changed
                error = changed
        return json_reply(error_body(error, self.variant.name), status=error.status)

    def _complete(self, turn: Turn, faults: tuple[ServerFault, ...], parsed: Any, outcome: MockOutcome) -> HttpReply:
        if isinstance(parsed, dict):
            for fault in faults:
                if fault.on_body is not None:
                    parsed = fault.on_body(turn, parsed)
        request = read_request(parsed, model=self.config.model, variant=self.variant)
        turn.request = request
        for fault in faults:
            if fault.on_request is not None:
                turn.request = request = fault.on_request(turn, request)
        prompt_tokens, cap = self._prompt(turn, faults, request)
        choices, usage = self._choices(turn, faults, request, prompt_tokens, cap, outcome)
        return self._render(turn, faults, request, choices, usage)

    def _prompt(self, turn: Turn, faults: tuple[ServerFault, ...], request: ChatRequest) -> tuple[int, int]:
        rendering = Rendering()
        for fault in faults:
            if fault.on_rendering is not None:
                rendering = fault.on_rendering(turn, rendering)
        prompt = render_prompt(request, self.variant, rendering)
        room = self.config.context_window - prompt.tokens
        if room < 1:
            raise ApiError(
                f"the prompt has {prompt.tokens} tokens, which exceeds the model token limit of"
                f" {self.config.context_window}",
                param="messages",
                reason="context",
            )
        turn.prompt_tokens = prompt.tokens
        turn.cached = self._cache.look_up_and_store(prompt)
        wanted = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
        return prompt.tokens, min(wanted, room)

    def _choices(
        self,
        turn: Turn,
        faults: tuple[ServerFault, ...],
        request: ChatRequest,
        prompt_tokens: int,
        cap: int,
        outcome: MockOutcome,
    ) -> tuple[tuple[DraftChoice, ...], Usage]:
        text = "" if request.last_user is None else request.last_user.text
        entry = self._key.find(request.last_user) or self._key.find_scripted(request)
        turn.ask = self._asks.take(text)
        outcome.asked = (text, turn.ask)
        at = scripted.place(entry, request) if entry is not None and entry.right.turns else None
        right = self._right(turn, faults, request, entry, at)
        drawn = None if entry is None else Drawn(answer=entry, ask=turn.ask, right=right)
        if at is None or (entry is not None and at.ends(entry, right=right)):
            outcome.drawn = drawn  # of a script only the end counts
        settings = (
            AnswerSetting(
                seed=self.config.seed,
                ask=turn.ask,
                choice=index,
                reply=None if drawn is None else drawn.reply,
                misread=not right,
                turn=None if at is None else at.turn,
            )
            for index in range(request.n)
        )
        choices = tuple(self._choice(turn, faults, request, setting, cap) for setting in settings)
        usage = Usage(
            prompt=prompt_tokens,
            cached=turn.cached,
            completion=sum(choice.tokens for choice in choices),
            reasoning=sum(len(choice.reasoning) for choice in choices),
        )
        for fault in faults:
            if fault.on_usage is not None:
                usage = fault.on_usage(turn, usage)
        turn.usage = usage
        for fault in faults:
            if fault.on_choices is not None:
                choices = fault.on_choices(turn, choices)
        return choices, usage

    def _right(
        self,
        turn: Turn,
        faults: tuple[ServerFault, ...],
        request: ChatRequest,
        entry: KeyedAnswer | None,
        at: scripted.ScriptPosition | None,
    ) -> bool:
        """Whether the entry is answered rightly this time; a script stays what its first turns have made it."""
        if entry is not None and at is not None and not at.decides(entry):
            return at.right is not False
        text = "" if request.last_user is None else request.last_user.text
        right = entry is None or draw(self.config.seed, text, turn.ask) < self.config.accuracy * entry.ease
        if entry is not None or sight.answer(request) is not None:
            for fault in faults:
                if fault.on_right is not None:
                    right = fault.on_right(turn, right)
        return right

    def _choice(
        self, turn: Turn, faults: tuple[ServerFault, ...], request: ChatRequest, setting: AnswerSetting, cap: int
    ) -> DraftChoice:
        draft = compose(request, setting)
        if request.logit_bias:
            draft = with_bias(draft, request, {**self._shown_ids, **self._said_ids(request)})
        if request.min_tokens:
            draft = with_minimum(draft, request)
        if request.include_internal_content or request.logprobs:
            self._remember_ids(draft)
        for fault in faults:
            if fault.on_draft is not None:
                draft = fault.on_draft(turn, draft, setting.choice)
        ids = tuple(
            render.call_id(self.variant.ids, call.name, request.past_calls + at) for at, call in enumerate(draft.calls)
        )
        return apply_limits(
            draft, request, index=setting.choice, ids=ids, cap=cap, named_finish=self.variant.named_finish
        )

    @staticmethod
    def _said_ids(request: ChatRequest) -> dict[int, str]:
        """Ids of the prompt's own tokens: who has the tokeniser can name any, and the endpoint's has no list of
        them.
        """
        return {token_id(token): token for message in request.messages for token in tokenize(message.text)}

    def _remember_ids(self, draft: Draft) -> None:
        """Ids that a client has seen can be named in logit_bias later."""
        if len(self._shown_ids) < _MAX_SHOWN_IDS:
            self._shown_ids.update((token_id(token), token) for token in tokenize(draft.content))

    def _render(
        self,
        turn: Turn,
        faults: tuple[ServerFault, ...],
        request: ChatRequest,
        choices: tuple[DraftChoice, ...],
        usage: Usage,
    ) -> HttpReply:
        envelope = render.ReplyEnvelope(
            id=render.completion_id(self.variant.ids),
            created=int(time.time()),
            model=request.model,
            variant=self.variant,
            request=request,
            usage=usage,
        )
        headers = render.accounting_headers(usage) if self.variant.accounting_headers else ()
        headers = (*headers, ("x-request-id", envelope.id))
        if request.stream:
            editing = [fault.on_frames for fault in faults if fault.on_frames is not None]
            if editing:
                frames = render.frames(envelope, choices)
                for edit in editing:
                    frames = edit(turn, frames)
                events: Iterator[bytes] = map(event, frames)
            else:
                events = render.events(envelope, choices)
            head = (("content-type", EVENT_STREAM), ("cache-control", "no-cache"), *headers)
            return HttpReply(status=200, headers=head, parts=self._paced(events), streamed=True)
        body = render.body(envelope, choices)
        for fault in faults:
            if fault.on_message is not None:
                body = fault.on_message(turn, body)
        reply = json_reply(body, headers=headers)
        seconds = (self.config.ttft_ms + self.config.itl_ms * max(0, usage.completion - 1)) / 1000
        return replace(reply, parts=(Wait(seconds), *reply.parts)) if seconds else reply

    def _paced(self, events: Iterator[bytes]) -> Iterator[Part]:
        if self.config.ttft_ms:
            yield Wait(self.config.ttft_ms / 1000)
        if self.config.itl_ms:
            pause = Wait(self.config.itl_ms / 1000)
            for number, data in enumerate(events):
                if number:
                    yield pause
                yield data
        else:
            yield from events
        yield DONE
