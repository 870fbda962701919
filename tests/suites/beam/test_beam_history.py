"""The shared conversation: cut like KVV's, serialised once, the same bytes as the messages themselves."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kvv.data import load
from kvv.data.merges import read_merges
from kvv.profiles.profile import Tokens
from kvv.profiles.token_counts import Bpe
from kvv.suites.beam.history import budget_of, first_kept, history_of, serialise_messages


class Words:
    def count(self, text: str) -> int:
        return len(text.split())


def test_whole_messages_go_from_the_front_and_then_on_to_the_next_user_turn() -> None:
    roles = ["user", "assistant"] * 3
    assert first_kept([10] * 6, roles, 60) == 0
    assert first_kept([10] * 6, roles, 59) == 2  # one message would do, but the rest must begin with the user
    assert first_kept([10] * 6, roles, 40) == 2
    assert first_kept([10] * 6, roles, 39) == 4
    assert first_kept([10] * 6, roles, 5) == 6


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 400))
def test_what_is_kept_fits_and_no_user_turn_more_would(counts: list[int], budget: int) -> None:
    roles = ["user" if n % 2 == 0 else "assistant" for n in range(len(counts))]
    first = first_kept(counts, roles, budget)
    assert sum(counts[first:]) <= budget
    if first:
        assert first == len(counts) or roles[first] == "user"
        earlier = first - 2 if first % 2 == 0 else first - 1
        assert sum(counts[earlier:]) > budget or sum(counts[earlier + 1 :]) > budget


@given(
    st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=30)}),
        max_size=5,
    )
)
def test_the_shared_text_is_the_messages(messages: list[dict[str, str]]) -> None:
    assert json.loads(b"[" + serialise_messages(messages) + b"]") == messages


def test_without_a_tokeniser_nothing_is_cut_and_nothing_called_counted() -> None:
    messages = [{"role": "user", "content": "word " * 100}]
    bare = history_of(messages, tokenizer=None, budget=10, overheads=Tokens(), thinking=True)
    assert (bare.dropped, bare.counted, bare.messages) == (0, False, 1)
    cut = history_of(messages, tokenizer=Words(), budget=10, overheads=Tokens(), thinking=True)
    assert (cut.dropped, cut.messages, cut.fragment.data) == (1, 0, b"")


def test_the_template_counts_towards_what_the_conversation_may_need_at_most() -> None:
    """K3: 11 tokens around a user message, 17 and an empty think block of 6 around the assistant's."""
    messages = [{"role": "user", "content": "a " * 20}, {"role": "assistant", "content": "b " * 20}]
    overheads = Tokens(message=11, assistant=17, think_block=6)
    for thinking, template in ((True, 34), (False, 28)):
        found = history_of(messages, tokenizer=Words(), budget=50, overheads=overheads, thinking=thinking)
        assert found.most_tokens - found.tokens == template


def test_chat_1m_6_exceeds_kvvs_budget_and_is_cut(shared: Path) -> None:
    """1,047,802 tokens against 1,048,576 - 32,768 - 5,000."""
    rows = {row["chat_id"]: row for row in load("beam", path=shared / "data" / "beam", variant="1M").rows}
    tokenizer = Bpe(read_merges(shared / "data" / "tokenizer" / "kimi-k2.6.tiktoken"))
    budget = budget_of(1_048_576, 32_768)
    assert budget == 1_010_808
    messages = rows["6"]["messages"]
    assert sum(tokenizer.count(message["content"]) for message in messages) == 1_047_802
    found = history_of(
        messages,
        tokenizer=tokenizer,
        budget=budget,
        overheads=Tokens(message=11, assistant=17, think_block=6),
        thinking=True,
    )
    kept = json.loads(b"[" + found.fragment.data + b"]")
    assert found.dropped > 0
    assert kept == [{"role": m["role"], "content": m["content"]} for m in messages[found.dropped :]]
    assert kept[0]["role"] == "user"
    assert budget - 10_000 < found.tokens <= budget
    # and with the template's own tokens it still exceeds the context: a refusal of it is no vendor's fault
    assert found.most_tokens + 32_768 > 1_048_576
