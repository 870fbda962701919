"""How often does `kvv identity` alarm where the model is the same, and how often where it is not?

The models are small random networks over words: the next word depends on the prompt and the last two words. One of them
is the official one. Everything behind the samples is the verb's own code. The `nats` of a row are the Kullback-Leibler
divergence of the alternative from the official model, per word: so far apart are the distributions that are to be told
apart. 4-bit and 8-bit rounding is by groups of 32 weights, as common formats do it.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from tables import show

from kvv.decision import identity
from kvv.decision.identity import ALPHA, IdentityData, PromptData, judge
from kvv.stats import clopper_pearson

PROMPTS, SAMPLES, WORDS_LONG, VOCABULARY, WIDTH = 20, 7, 20, 256, 48
Floats = NDArray[np.float64]
Model = Callable[[int, int, np.random.Generator, float], list[list[str]]]

_letters = np.random.default_rng(5)
WORDS = ["".join(_letters.choice(list("etaoinshrdlu"), size=_letters.integers(1, 8))) for _ in range(VOCABULARY)]


@dataclass(frozen=True)
class Network:
    """``temperature`` divides the logits; ``shift`` stands for another template: another state to begin with."""

    words: Floats
    recent: Floats
    older: Floats
    prompts: Floats
    out: Floats
    temperature: float = 1.0
    shift: float = 0.0

    @staticmethod
    def drawn(seed: int) -> Network:
        g = np.random.default_rng(seed)
        # scales at which the next word has an entropy of about 2 nats, as open prompts have
        return Network(
            words=g.normal(size=(VOCABULARY, WIDTH)),
            recent=g.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5,
            older=g.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5,
            prompts=g.normal(size=(PROMPTS, WIDTH)),
            out=g.normal(size=(WIDTH, VOCABULARY)) * 0.45,
        )

    def rounded(self, bits: int) -> Network:
        return replace(
            self, **{name: _rounded(getattr(self, name), bits) for name in ("recent", "older", "out", "words")}
        )

    def logits(self, last: NDArray[np.int64], before: NDArray[np.int64], prompt: NDArray[np.int64]) -> Floats:
        state = self.words[last] @ self.recent + self.words[before] @ self.older + self.prompts[prompt] + self.shift
        return np.tanh(state) @ self.out / self.temperature

    def sample(self, count: int, generator: np.random.Generator, greedy: bool = False) -> NDArray[np.int64]:
        """``count`` texts of each prompt: (prompts, count, words)."""
        prompt = np.repeat(np.arange(PROMPTS), count)
        found = np.zeros((len(prompt), WORDS_LONG + 2), dtype=np.int64)
        for t in range(2, WORDS_LONG + 2):
            scores = self.logits(found[:, t - 1], found[:, t - 2], prompt)
            noise = generator.gumbel(size=scores.shape) if not greedy else generator.normal(size=scores.shape) * 0.02
            found[:, t] = np.argmax(scores + noise, axis=1)
        return found[:, 2:].reshape(PROMPTS, count, WORDS_LONG)

    def distance(self, other: Network, generator: np.random.Generator) -> float:
        """Nats a word, over texts that this network wrote."""
        rows = self.sample(40, generator).reshape(-1, WORDS_LONG)
        prompt = np.repeat(np.arange(PROMPTS), 40)
        total = []
        for t in range(2, WORDS_LONG):
            mine, theirs = (_log_softmax(one.logits(rows[:, t - 1], rows[:, t - 2], prompt)) for one in (self, other))
            total.append((np.exp(mine) * (mine - theirs)).sum(axis=1).mean())
        return float(np.mean(total))


def _log_softmax(scores: Floats) -> Floats:
    top = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(top - np.log(np.exp(top).sum(axis=1, keepdims=True)))


def _rounded(weights: Floats, bits: int) -> Floats:
    flat = weights.reshape(-1, 32) if weights.size % 32 == 0 else weights.reshape(1, -1)
    scale = np.abs(flat).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
    return (np.round(flat / scale) * scale).reshape(weights.shape)


def texts(rows: NDArray[np.int64]) -> list[list[str]]:
    return [[" ".join(WORDS[word] for word in text) for text in prompt] for prompt in rows]


Draw = Callable[[np.random.Generator], tuple[list[list[str]], list[str]]]


def plain(network: Network) -> Draw:
    def draw(g: np.random.Generator) -> tuple[list[list[str]], list[str]]:
        return texts(network.sample(SAMPLES, g)), [one[0] for one in texts(network.sample(1, g, greedy=True))]

    return draw


def mixed(network: Network, other: Network, share: float) -> Draw:
    def draw(g: np.random.Generator) -> tuple[list[list[str]], list[str]]:
        (ours, greedy), (theirs, also) = plain(network)(g), plain(other)(g)
        swap = g.random((PROMPTS, SAMPLES)) < share
        rows = [[b if s else a for a, b, s in zip(*each, strict=True)] for each in zip(ours, theirs, swap, strict=True)]
        return rows, [b if g.random() < share else a for a, b in zip(greedy, also, strict=True)]

    return draw


def cached(network: Network, share: float) -> Draw:
    """This share of the answers repeats the prompt's first one."""

    def draw(g: np.random.Generator) -> tuple[list[list[str]], list[str]]:
        rows, greedy = plain(network)(g)
        return [[row[0] if i and g.random() < share else text for i, text in enumerate(row)] for row in rows], greedy

    return draw


def audit(official: Draw, candidate: Draw, g: np.random.Generator, greedy: bool) -> float:
    runs = [official(g), official(g), candidate(g)]
    prompts = [
        PromptData(
            references=(tuple(runs[0][0][i]), tuple(runs[1][0][i])),
            texts=tuple(runs[2][0][i]),
            greedy=tuple(run[1][i] for run in runs) if greedy else None,
        )
        for i in range(PROMPTS)
    ]
    return judge(IdentityData(prompts=tuple(prompts)), g).p


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--null", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name or way of asking matches")
    parser.add_argument("--permutations", type=int, default=identity.PERMUTATIONS)
    arguments = parser.parse_args()
    identity.PERMUTATIONS = arguments.permutations
    null, each = (200, 50) if arguments.quick else (arguments.null, arguments.each)
    official, other = Network.drawn(1), Network.drawn(2)
    near = replace(official, out=official.out + 0.3 * other.out)
    rows: dict[str, tuple[Network | None, Draw]] = {
        "the same model (no alarm wanted)": (official, plain(official)),
        "another model": (other, plain(other)),
        "a fine-tuned model": (near, plain(near)),
        **{f"{100 * s:.0f} % another model": (None, mixed(official, other, s)) for s in (0.05, 0.1, 0.2, 0.3, 0.5)},
        "4-bit weights": (official.rounded(4), plain(official.rounded(4))),
        "3-bit weights": (official.rounded(3), plain(official.rounded(3))),
        "8-bit weights": (official.rounded(8), plain(official.rounded(8))),
        "temperature 0.9": (replace(official, temperature=0.9), plain(replace(official, temperature=0.9))),
        "temperature 0.7": (replace(official, temperature=0.7), plain(replace(official, temperature=0.7))),
        "another chat template": (replace(official, shift=0.5), plain(replace(official, shift=0.5))),
        "25 % cached answers": (None, cached(official, 0.25)),
        "50 % cached answers": (None, cached(official, 0.5)),
    }
    told = []
    for name, (network, candidate) in rows.items():
        for greedy in (False, True):
            asked = "with greedy" if greedy else "sampled only"
            if not re.search(arguments.only, f"{name}, {asked}"):
                continue
            n = null if network is official else each
            g = np.random.default_rng([arguments.seed, greedy])
            begun = time.perf_counter()
            alarms = sum(audit(plain(official), candidate, g, greedy) < ALPHA for _ in range(n))
            found = clopper_pearson(alarms, n)
            nats = "" if network is None else f"{official.distance(network, np.random.default_rng(3)):.4f}"
            told.append(
                [
                    name,
                    asked,
                    nats,
                    n,
                    f"{100 * alarms / n:.2f} [{100 * found.low:.2f}, {100 * found.high:.2f}]",
                    f"{1000 * (time.perf_counter() - begun) / n:.0f}",
                ]
            )
            print(*told[-1], sep="  ", flush=True)
    show("kvv identity", ["what is served", "asked", "nats", "audits", f"alarms at {ALPHA}, %", "ms an audit"], told)


if __name__ == "__main__":
    main()
