"""Permutation tests of texts: exact under the null, and they see what they are for."""

from __future__ import annotations

import numpy as np
import pytest

from kvv.stats.two_sample import (
    codes,
    hamming_kernel,
    mmd_test,
    odd_one_out,
    repeats_test,
    style_test,
    trigram_features,
)

LETTERS = np.array(list("abcd"))


def drawn(generator: np.random.Generator, count: int, weights: list[float]) -> list[str]:
    return ["".join(generator.choice(LETTERS, size=12, p=weights)) for _ in range(count)]


def p_of(generator: np.random.Generator, weights: list[float], permutations: int = 199) -> float:
    even = [0.25] * 4
    prompts = [drawn(generator, 5, weights) + drawn(generator, 10, even) for _ in range(6)]
    kernels = [hamming_kernel(codes(texts, 12)) for texts in prompts]
    return mmd_test(kernels, [5] * 6, generator, permutations).p


def test_the_kernel_is_the_share_of_places_that_agree() -> None:
    kernel = hamming_kernel(codes(["abcd", "abxx", "ab", ""], 4))
    assert kernel[0].tolist() == [1.0, 0.5, 0.5, 0.0]
    # both have ended at places three and four
    assert kernel[2, 3] == 0.5


def test_equal_distributions_are_told_apart_as_rarely_as_the_p_value_says() -> None:
    generator = np.random.default_rng(1)
    found = np.array([p_of(generator, [0.25] * 4) for _ in range(400)])
    # 5 % of 400: 20, three standard errors are 13
    assert (found <= 0.05).sum() <= 33
    assert (found <= 0.5).mean() == pytest.approx(0.5, abs=0.08)


def test_different_distributions_are_told_apart() -> None:
    generator = np.random.default_rng(2)
    assert p_of(generator, [0.7, 0.1, 0.1, 0.1], 9_999) < 0.001


def test_style_is_told_apart_as_rarely_as_the_p_value_says_and_where_there_is_one() -> None:
    generator = np.random.default_rng(8)

    def p_of_style(weights: list[float]) -> float:
        prompts = [drawn(generator, 3, weights) + drawn(generator, 6, [0.25] * 4) for _ in range(6)]
        return style_test([trigram_features(texts, 64) for texts in prompts], [3] * 6, generator, 999).p

    assert sum(p_of_style([0.25] * 4) <= 0.05 for _ in range(200)) <= 20
    assert p_of_style([0.7, 0.1, 0.1, 0.1]) <= 0.002


def test_features_have_norm_one_for_every_text() -> None:
    found = trigram_features(["", "ab", "abcabc", "\ud800 lone"], 32)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0)


def test_prompts_that_differ_among_themselves_are_no_difference() -> None:
    generator = np.random.default_rng(3)
    prompts = [[f"{prompt}" * 12] * 15 for prompt in range(6)]
    kernels = [hamming_kernel(codes(texts, 12)) for texts in prompts]
    assert mmd_test(kernels, [5] * 6, generator).p == pytest.approx(1.0)


def test_repeated_answers_are_seen_and_common_ones_are_not() -> None:
    generator = np.random.default_rng(4)
    cached = [["same"] * 5 + [f"{prompt} {i}" for i in range(10)] for prompt in range(6)]
    assert repeats_test(cached, [5] * 6, generator).p < 0.001
    usual = [["same"] * 15 for _ in range(6)]
    assert repeats_test(usual, [5] * 6, generator).p == pytest.approx(1.0)


def test_the_odd_one_of_three_is_the_one_that_is_far_from_both() -> None:
    generator = np.random.default_rng(5)
    assert odd_one_out(np.array([[3.0, 3.0, 1.0]] * 12), generator).p < 0.001
    # another of the three is the odd one
    assert odd_one_out(np.array([[3.0, 1.0, 3.0]] * 12), generator).p > 0.5
    with pytest.raises(ValueError, match="no rows"):
        odd_one_out(np.zeros((0, 3)), generator)


def test_three_alike_are_told_apart_as_rarely_as_the_p_value_says() -> None:
    generator = np.random.default_rng(6)
    found = np.array([odd_one_out(generator.random((10, 3)), generator, 199).p for _ in range(400)])
    assert (found <= 0.05).sum() <= 33


def test_an_early_end_gives_the_same_decision_as_all_permutations() -> None:
    generator = np.random.default_rng(7)
    found = mmd_test([hamming_kernel(codes(list("abcdefgh"), 1))], [4], generator, 9_999)
    assert found.permutations < 9_999
    assert found.p > 0.05


def test_a_sample_that_is_empty_is_none() -> None:
    with pytest.raises(ValueError, match="no two samples"):
        mmd_test([np.eye(3)], [3], np.random.default_rng(0))
