"""From answers to one p-value and what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvv.core import Outcome
from kvv.decision.identity import IdentityData, IdentityResult, PromptData, forms_p, judge, probe_pairs

WORDS = ("river", "stone", "letter", "winter", "garden", "bridge")


def texts(generator: np.random.Generator, count: int, words: tuple[str, ...] = WORDS) -> tuple[str, ...]:
    return tuple(" ".join(generator.choice(words, size=8)) for _ in range(count))


def judged(*, ours: Any = WORDS, second: Any = WORDS, **more: Any) -> IdentityResult:
    generator = np.random.default_rng(0)
    prompts = [
        PromptData(
            references=(texts(generator, 7), texts(generator, 7, second))[: more.get("runs", 2)],
            texts=ours(generator) if callable(ours) else texts(generator, 7, ours),
            greedy=more.get("greedy"),
            distributions=more.get("distributions"),
        )
        for _ in range(20)
    ]
    return judge(IdentityData(prompts=tuple(prompts)), generator)


OTHER = ("tower", "paper", "silver", "engine")


def test_the_same_distribution_shows_no_difference() -> None:
    found = judged()
    assert found.outcome is Outcome.PASS
    assert found.official_p is not None
    assert found.sentence.startswith("no difference from the official model is shown")


def test_another_model_differs_more_than_official_from_itself() -> None:
    found = judged(ours=OTHER)
    assert (found.outcome, found.p < 0.001) == (Outcome.FAIL, True)
    assert found.sentence == f"differs more than official from itself (p {found.p:.2g})"
    assert found.looks[0].ours < found.looks[0].theirs


def test_official_runs_that_differ_from_each_other_are_no_measure() -> None:
    found = judged(ours=OTHER, second=("cat", "dog", "mouse"))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "the official runs differ from each other too" in found.sentence


def test_one_official_run_accuses_nobody() -> None:
    found = judged(ours=OTHER, runs=1)
    assert (found.outcome, found.official_p) == (Outcome.INCONCLUSIVE, None)
    assert judged(runs=1).outcome is Outcome.PASS


def test_greedy_answers_that_part_early_are_seen_although_samples_are_alike() -> None:
    found = judged(greedy=("the river is long", "the river is loud", "a stone"))
    assert (found.outcome, [look.name for look in found.looks]) == (
        Outcome.FAIL,
        ["texts at temperature 1", "style over all prompts", "greedy answers"],
    )
    assert (found.looks[2].theirs, found.looks[2].ours) == (15, 0)
    alike = judged(greedy=("the river is long", "the river is loud", "the river is low"))
    assert alike.outcome is Outcome.PASS


def test_distributions_are_compared_only_where_the_texts_are_still_the_same() -> None:
    official = ({"a": 0.6, "b": 0.4}, {"c": 1.0})
    near = ({"a": 0.5, "b": 0.5}, {"c": 1.0})
    found = judged(distributions=(official, official, near))
    assert found.looks[2].p < 0.001
    assert found.looks[2].ours == pytest.approx(0.05)
    # the first token differs: what follows is of another text
    after = judged(distributions=(({"a": 0.6, "b": 0.4}, {"x": 1.0}),) * 2 + (({"a": 0.4, "b": 0.6}, {"y": 1.0}),))
    assert after.looks[2].ours == pytest.approx(0.2)


def test_the_p_value_pays_for_each_look() -> None:
    found = judged(greedy=("same", "same", "same"))
    assert found.p == min(1.0, 3 * min(look.p for look in found.looks))


def test_a_style_that_all_prompts_share_is_seen_where_no_prompt_shows_it() -> None:
    def some_other(generator: np.random.Generator) -> tuple[str, ...]:
        return texts(generator, 6, tuple(f"{a}{b}" for a in WORDS for b in WORDS)) + texts(generator, 1, OTHER)

    many = tuple(f"{a}{b}" for a in WORDS for b in WORDS)
    generator = np.random.default_rng(3)
    prompts = [
        PromptData(references=(texts(generator, 7, many), texts(generator, 7, many)), texts=some_other(generator))
        for _ in range(20)
    ]
    found = judge(IdentityData(prompts=tuple(prompts)), generator)
    assert found.looks[0].p > 0.01
    assert found.looks[1].p < 0.0005
    assert found.outcome is Outcome.FAIL


def test_cached_answers_are_named() -> None:
    found = judged(ours=lambda generator: texts(generator, 1) * 7)
    assert found.repeats_p < 0.001
    assert found.repeated
    assert judged().repeated == ()


def test_requests_that_are_recognised_are_seen() -> None:
    generator = np.random.default_rng(1)
    alike = [(texts(generator, 4), texts(generator, 3)) for _ in range(20)]
    better = [(texts(generator, 4, OTHER), texts(generator, 3)) for _ in range(20)]
    assert (forms_p(alike, generator) or 0) > 0.001
    assert (forms_p(better, generator) or 1) < 0.001
    assert forms_p([((), texts(generator, 3))], generator) is None


def test_tasks_that_are_solved_only_in_a_harness_words_are_seen() -> None:
    found = probe_pairs([[True, False]] * 10 + [[True, True]] * 2)
    assert (found.recognisable, found.rewritten, found.n, found.p) == (12, 2, 12, 2**-10)
    # the other way round, unlike by chance, and unanswered
    assert probe_pairs([[False, True]] * 10).p == 1.0
    assert probe_pairs([[True, False], [False, True]]).p == 0.75
    assert (probe_pairs([[True, None], [None, None]]).n, probe_pairs([]).p) == (0, 1.0)
