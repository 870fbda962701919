"""Budgets that end a run in a reported state: requests, tokens, money, time."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

from kvv.core import Observation
from kvv.profiles.profile import Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBounds:
    """None means unbounded. ``deadline_s`` counts from the start of this process's part of the run."""

    requests: int | None = None
    tokens: int | None = None
    cost: float | None = None
    deadline_s: float | None = None


@dataclass(slots=True)
class Spent:
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


@dataclass(slots=True)
class Budget:
    bounds: RunBounds
    prices: Prices | None
    judge_prices: Prices | None = None
    spent: Spent = field(default_factory=Spent)
    started: float = field(default_factory=monotonic)

    def count_request(self) -> None:
        self.spent.requests += 1

    def count_usage(self, observation: Observation) -> float | None:
        """Adds an answer's own usage figures; its cost in dollars, None where prices or usage are unknown."""
        counted = self._counted(observation)
        if counted is None:
            return None
        prompt, cached, completion = counted
        self.spent.prompt_tokens += prompt
        self.spent.cached_tokens += cached
        self.spent.completion_tokens += completion
        return self._paid(self.prices, counted)

    def count_judge(self, observation: Observation) -> float | None:
        """A judge's answer costs money; its tokens are none of the endpoint's."""
        counted = self._counted(observation)
        return None if counted is None else self._paid(self.judge_prices, counted)

    @staticmethod
    def _counted(observation: Observation) -> tuple[int, int, int] | None:
        """Prompt, cached and completion tokens; None where there is no usage."""
        prompt = observation.tokens("prompt_tokens")
        completion = observation.tokens("completion_tokens")
        if prompt is None and completion is None:
            return None
        cached = observation.detail_tokens("prompt_tokens_details", "cached_tokens") or 0
        # a wire fault may report nonsense: negative counts and a cache larger than the prompt must not earn money back
        prompt, completion = max(prompt or 0, 0), max(completion or 0, 0)
        return prompt, min(max(cached, 0), prompt), completion

    def _paid(self, prices: Prices | None, counted: tuple[int, int, int]) -> float | None:
        if prices is None:
            return None
        prompt, cached, completion = counted
        cost = price_of(prices, prompt=prompt - cached, cached=cached, completion=completion)
        self.spent.cost += cost
        return cost

    def remaining_s(self) -> float | None:
        if self.bounds.deadline_s is None:
            return None
        return max(0.0, self.bounds.deadline_s - (monotonic() - self.started))

    def exceeded(self) -> str | None:
        """Which budget is used up, as a stable reason code, or None."""
        bounds, spent = self.bounds, self.spent
        if bounds.deadline_s is not None and self.remaining_s() == 0.0:
            return "deadline"
        if bounds.requests is not None and spent.requests >= bounds.requests:
            return "max-requests"
        if bounds.tokens is not None and spent.prompt_tokens + spent.completion_tokens >= bounds.tokens:
            return "max-tokens-total"
        if bounds.cost is not None and spent.cost >= bounds.cost:
            return "max-cost"
        return None


def price_of(prices: Prices, *, prompt: int, cached: int, completion: int) -> float:
    """Dollars for token counts; ``prompt`` without the cached part."""
    return (prompt * prices.input + cached * prices.cached + completion * prices.output) / 1_000_000
