"""A conversation as one piece of JSON text that all its questions share, cut to the token budget the way KVV cuts
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvv.core import Fragment
from kvv.profiles.profile import Tokens
from kvv.profiles.token_counts import Tokenizer, count_each
from kvv.protocol.encode import encode

#: KVV's reserve for what it does not count: the template's own tokens and the question
RESERVE = 5_000
#: UTF-8 bytes a token of the 1M conversations (Kimi tokeniser, 12 measured: 2.99 to 4.83, mean 3.94); estimates only
BYTES_PER_TOKEN = 4.0
#: no measured conversation has fewer bytes a token: what fits by this certainly fits
LEAST_BYTES_PER_TOKEN = 2.5
#: template tokens of a message where the profile does not tell; K3's user message has 11, its assistant message 23
MESSAGE_OVERHEAD = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationHistory:
    """``tokens`` is of the contents alone, an estimate unless ``counted``; ``most_tokens`` is what they may be at most,
    template included.
    """

    fragment: Fragment
    tokens: int
    counted: bool
    most_tokens: int
    messages: int
    dropped: int


def history_of(
    messages: Sequence[Mapping[str, str]],
    *,
    tokenizer: Tokenizer | None,
    budget: int,
    overheads: Tokens,
    thinking: bool,
) -> ConversationHistory:
    """Cut (only with a tokeniser) and serialise. Called once a conversation: at a million tokens it takes seconds."""
    sizes = [len(message["content"].encode("utf-8", "surrogatepass")) for message in messages]
    first, counts = 0, None
    if (
        tokenizer is not None and sum(sizes) > budget
    ):  # a token has at least one byte: a smaller conversation fits in any case
        counts = count_each(tokenizer, [message["content"] for message in messages])
        first = first_kept(counts, [message["role"] for message in messages], budget)
    kept = messages[first:]
    template = sum(_overhead(message["role"], overheads, thinking) for message in kept)
    size = sum(sizes[first:])
    tokens = int(size / BYTES_PER_TOKEN) if counts is None else sum(counts[first:])
    return ConversationHistory(
        fragment=Fragment.of(serialise_messages(kept), splice=True),
        tokens=tokens,
        counted=counts is not None,
        most_tokens=(int(size / LEAST_BYTES_PER_TOKEN) if counts is None else tokens) + template,
        messages=len(kept),
        dropped=first,
    )


def budget_of(context_window: int, max_tokens: int | None) -> int:
    """Content tokens that KVV leaves for the conversation."""
    return max(0, context_window - (max_tokens or 0) - RESERVE)


def first_kept(counts: Sequence[int], roles: Sequence[str], budget: int) -> int:
    """Whole messages go from the front until the rest fits, then on to the next user turn; len(counts) where nothing
    fits.
    """
    total, first = sum(counts), 0
    while first < len(counts) and total > budget:
        total -= counts[first]
        first += 1
    while 0 < first < len(roles) and roles[first] != "user":
        first += 1
    return first


def serialise_messages(messages: Sequence[Mapping[str, str]]) -> bytes:
    """The messages as comma-joined JSON objects."""
    return b",".join(encode({"role": message["role"], "content": message["content"]}).parts[0] for message in messages)


def _overhead(role: str, overheads: Tokens, thinking: bool) -> int:
    if role != "assistant":
        return MESSAGE_OVERHEAD if overheads.message is None else overheads.message
    if overheads.assistant is None:
        return MESSAGE_OVERHEAD
    return overheads.assistant + (overheads.think_block or 0 if thinking else 0)
