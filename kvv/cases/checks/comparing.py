"""Checks over all answers of a case: ``compare = { name = value }`` in a case file. Answers go by their request's name;
of a request asked n times they are ``name.1`` to ``name.n``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from kvv.cases.checks.alike import ALIKE
from kvv.cases.checks.base import (
    Check,
    CheckInput,
    CheckProblem,
    group,
    inconclusive,
    index_by_name,
    prompt_tokens_of,
    quote,
)
from kvv.core import Answered, Outcome

#: one-sided error of the comparison of two groups of samples
ALPHA = 0.05


def same_prompt_tokens(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """All answers (or those of the list) report the same usage.prompt_tokens."""
    names = wanted if isinstance(wanted, (list, tuple)) else list(look.siblings)
    counts: dict[str, int] = {}
    for name in names:
        tokens = prompt_tokens_of(look, name)
        if isinstance(tokens, CheckProblem):
            return tokens
        counts[name] = tokens
    if len(set(counts.values())) <= 1:
        return None
    return CheckProblem(reason="prompt-tokens-differ", detail=f"prompt_tokens {_shown(counts)}")


def prompt_token_difference(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ of, minus, is }``: prompt_tokens of one answer minus those of another is exactly this; a list states several.

    ``is-not`` names a value that tells a known shortcut apart; with ``at-least`` the difference need only be that
    large.
    """
    for rule in wanted if isinstance(wanted, (list, tuple)) else [wanted]:
        one, other = prompt_tokens_of(look, rule["of"]), prompt_tokens_of(look, rule["minus"])
        if isinstance(one, CheckProblem):
            return one
        if isinstance(other, CheckProblem):
            return other
        difference = one - other
        right = difference == rule["is"] if "is" in rule else difference >= rule["at-least"]
        if not right:
            want = rule["is"] if "is" in rule else f"at least {rule['at-least']}"
            known = rule.get("known", {}).get(str(difference))
            return CheckProblem(
                reason="prompt-token-difference",
                detail=(
                    f"prompt_tokens of {rule['of']} ({one}) minus {rule['minus']} ({other}) is {difference}, want"
                    f" {want}"
                )
                + (f": {known}" if known else ""),
            )
    return None


def _prompt_tokens_by_name(look: CheckInput, names: Iterable[str]) -> dict[str, int] | CheckProblem:
    """In the order of the names; the Problem of the first that has no count."""
    counts: dict[str, int] = {}
    for name in names:
        tokens = prompt_tokens_of(look, name)
        if isinstance(tokens, CheckProblem):
            return tokens
        counts[name] = tokens
    return counts


def prompt_tokens_grow(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """usage.prompt_tokens grows strictly along the list of names."""
    counts = _prompt_tokens_by_name(look, wanted)
    if isinstance(counts, CheckProblem):
        return counts
    if all(later > earlier for earlier, later in pairwise(counts.values())):
        return None
    return CheckProblem(reason="prompt-tokens-do-not-grow", detail=f"prompt_tokens {_shown(counts)}")


def prompt_tokens_in_steps(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """usage.prompt_tokens grows by the same number from each name of the list to the next."""
    counts = _prompt_tokens_by_name(look, wanted)
    if isinstance(counts, CheckProblem):
        return counts
    steps = [later - earlier for earlier, later in pairwise(counts.values())]
    if len(set(steps)) <= 1:
        return None
    return CheckProblem(
        reason="prompt-tokens-uneven", detail=f"prompt_tokens {_shown(counts)}: steps of {', '.join(map(str, steps))}"
    )


def same_structure(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """All answers agree in finish_reason, in the tools called, in whether there is content, and in prompt_tokens.

    For requests whose structure is forced. An answer cut by length cannot be compared.
    """
    seen = {}
    for name, answered in look.siblings.items():
        observation = answered.observation
        if observation.finish_reason == "length":
            return inconclusive("cut-by-length", f"the answer to {name!r} was cut by length")
        seen[name] = (
            observation.finish_reason,
            tuple(call.name for call in observation.tool_calls),
            bool(observation.answer.strip()),
        )
    labels = ("finish_reason", "calls", "content")
    for at, label in enumerate(labels):
        values = {name: parts[at] for name, parts in seen.items()}
        if len(set(values.values())) > 1:
            return CheckProblem(reason="structures-differ", detail=f"{label} {_shown(values)}")
    return same_prompt_tokens(look, True)


def same_text(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """All answers have exactly the same content; for content that a schema or greedy decoding fixes."""
    return _all_same(look, "texts-differ", lambda answered: answered.observation.answer)


def same_arguments(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """All answers call the same tools with the same arguments, as JSON values; for arguments that the schema fixes."""

    def arguments(answered: Answered) -> Any:
        return tuple((call.name, _canonical(call.arguments)) for call in answered.observation.tool_calls)

    return _all_same(look, "arguments-differ", arguments)


def distinct_texts(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """At least this many different contents among the answers."""
    found = len({answered.observation.answer for answered in look.siblings.values()})
    if found >= int(wanted):
        return None
    return CheckProblem(
        reason="texts-alike", detail=f"{found} different contents of {len(look.siblings)}, want {wanted}"
    )


def distinct_tool_ids(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """No tool-call id comes twice in all answers."""
    ids = [
        call.id
        for answered in look.siblings.values()
        for call in answered.observation.tool_calls
        if call.id is not None
    ]
    again = next((one for one in ids if ids.count(one) > 1), None)
    return (
        None
        if again is None
        else CheckProblem(reason="tool-id-repeats", detail=f"the id {quote(again)} was given twice")
    )


def cached_tokens(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ of, at-least-of, share }``: of one answer's prompt at least that share as many tokens came from the cache as
    of another's.

    Caches are best effort and count in blocks: without a hit of the other request there is nothing to lose, and one
    more sample must show a loss too.
    """
    found, base = _cached(look.siblings[wanted["of"]]), _cached(look.siblings[wanted["at-least-of"]])
    if not base:
        detail = f"the request {wanted['at-least-of']!r} had no cache hit to compare with"
        return CheckProblem(reason="no-cache-hit", detail=detail, outcome=Outcome.PASS)
    if found is not None and found >= base * float(wanted.get("share", 1.0)):
        return None
    detail = f"cached_tokens of {wanted['of']} is {found}, of {wanted['at-least-of']} {base}"
    return CheckProblem(reason="cache-lost", detail=detail)


def reasoning_grows(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``[a, b]``: reasoning of the samples of b is longer than that of a, in the median; FAIL only where it is clearly
    shorter.

    A model's length varies: the one-sided Mann-Whitney test must say that b is shorter before anyone is blamed.
    """
    return _grows(look, wanted, "reasoning", lambda answered: len(answered.observation.reasoning))


def _grows(look: CheckInput, names: Sequence[str], what: str, size: Callable[[Answered], int]) -> CheckProblem | None:
    shorter, longer = ([size(answered) for answered in group(look, name)] for name in names)
    if not shorter or not longer:
        return inconclusive("no-samples", f"no samples of {' or '.join(names)}")
    one, other = median(shorter), median(longer)
    detail = f"median length of {what}: {names[0]} {one:g}, {names[1]} {other:g}"
    if other > one:
        return None
    from scipy.stats import mannwhitneyu  # here: its import takes a second, and one check in hundreds needs it

    if float(mannwhitneyu(longer, shorter, alternative="less").pvalue) < ALPHA:
        return CheckProblem(reason="effort-inverted", detail=detail)
    if len(set(shorter) | set(longer)) == 1:
        return CheckProblem(reason="effort-ignored", detail=f"{detail}: every sample has the same length")
    return inconclusive("effort-unclear", detail)


def _cached(answered: Answered) -> int | None:
    return answered.observation.detail_tokens("prompt_tokens_details", "cached_tokens")


def _all_same(look: CheckInput, reason: str, key: Callable[[Answered], Any]) -> CheckProblem | None:
    values = {}
    for name, answered in look.siblings.items():
        if answered.observation.finish_reason == "length":
            return inconclusive("cut-by-length", f"the answer to {name!r} was cut by length")
        values[name] = key(answered)
    first = next(iter(values.values()))
    if all(value == first for value in values.values()):
        return None
    return CheckProblem(
        reason=reason, detail=f"{', '.join(f'{name} {quote(str(value))}' for name, value in values.items())}"[:380]
    )


def _canonical(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _shown(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())[:300]


_FUNCTIONS: list[Check] = [
    same_prompt_tokens,
    prompt_token_difference,
    prompt_tokens_grow,
    prompt_tokens_in_steps,
    same_structure,
    same_text,
    same_arguments,
    distinct_texts,
    distinct_tool_ids,
    cached_tokens,
    reasoning_grows,
]
COMPARISONS: Mapping[str, Check] = {**index_by_name(_FUNCTIONS), **ALIKE}
