"""Text that the endpoint makes up: reasoning and prose of a wanted length, drawn from fixed sentences and words.

Nothing here is random by itself. A ``Sampler`` turns a key (prompt, draw, temperature) into choices, so that equal keys
give equal text, temperature 0 always gives the most likely choice, and lower temperatures make it more frequent.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

_DECAY = 0.82  # each candidate is this much less likely than the one before it

OPENINGS = (
    "Here is a short answer.",
    "Let me put it briefly.",
    "This can be said in a few words.",
    "A direct reply follows.",
    "The gist is simple.",
    "To keep it plain, here it is.",
)
BODIES = (
    "The main point is that careful checking beats quick guessing.",
    "Small steps, each verified, lead further than one large leap.",
    "Most of the work lies in naming the parts and seeing how they fit.",
    "What matters first is a clear question, then the evidence for it.",
    "Good results come from measuring before changing anything.",
    "It helps to write down what is known and what is only assumed.",
)
CLOSINGS = (
    "Ask again if you want more detail.",
    "That should cover it.",
    "I can go deeper on any part.",
    "This is all that is needed here.",
    "More context would sharpen it.",
)
THOUGHTS = (
    "First I look at what kind of answer is wanted.",
    "There is no need to overcomplicate this.",
    "I check whether any part of it is ambiguous.",
    "Several readings are possible, yet one is clearly meant.",
    "I recall what was said earlier and see that nothing contradicts it.",
    "The format matters, so I keep to what was requested.",
    "A quick sanity check shows no problem.",
    "I consider an alternative and drop it again.",
    "Every condition seems to be met now.",
    "It remains to phrase the reply well.",
    "Length should stay modest.",
    "With that settled, I can write it out.",
)
WORDS = [
    "river",
    "stone",
    "window",
    "garden",
    "letter",
    "morning",
    "table",
    "paper",
    "silver",
    "mountain",
    "bridge",
    "forest",
    "candle",
    "harbor",
    "winter",
    "orange",
    "simple",
    "gentle",
    "quiet",
    "bright",
    "narrow",
    "broad",
    "early",
    "second",
    "travel",
    "carry",
    "build",
    "follow",
    "answer",
    "measure",
    "wander",
    "listen",
    "gather",
    "under",
    "over",
    "between",
    "around",
    "after",
    "before",
    "with",
    "from",
    "toward",
    "valley",
    "meadow",
    "engine",
    "copper",
    "velvet",
    "marble",
    "signal",
    "lantern",
    "anchor",
    "compass",
    "thunder",
    "shadow",
    "pepper",
    "violet",
    "canyon",
    "island",
    "feather",
    "needle",
    "basket",
    "hammer",
    "ladder",
    "mirror",
    "pocket",
    "ribbon",
    "saddle",
    "tunnel",
    "wagon",
    "yellow",
    "zebra",
    "acorn",
    "beacon",
    "cradle",
    "dragon",
    "ember",
    "falcon",
]


class Sampler:
    """A stream of choices that depends only on ``key`` and ``temperature``."""

    def __init__(self, key: str, temperature: float) -> None:
        self._key = key
        self._temperature = temperature
        self._at = 0

    def pick(self, candidates: Sequence[str], scope: str = "") -> str:
        """One candidate. Their order of likelihood depends on ``scope`` and position, not on the draw."""
        self._at += 1
        ranked = _ranked(scope, self._at, tuple(candidates))
        if self._temperature <= 0:
            return ranked[0]
        weights = [_DECAY ** (rank / max(self._temperature, 0.05)) for rank in range(len(ranked))]
        point = _hash(f"{self._key}\0{self._at}") / 2**56 * sum(weights)
        for candidate, weight in zip(ranked, weights, strict=True):
            point -= weight
            if point < 0:
                return candidate
        return ranked[-1]


@lru_cache(maxsize=8192)
def _ranked(scope: str, at: int, candidates: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(candidates, key=lambda candidate: _hash(f"{scope}\0{at}\0{candidate}")))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "big")


def prose(sampler: Sampler, scope: str) -> str:
    """Three sentences."""
    return " ".join(sampler.pick(sentences, scope) for sentences in (OPENINGS, BODIES, CLOSINGS))


def words(count: int, scope: str) -> str:
    """``count`` words in sentences of twelve, without a repeated stretch: a fixed function of both arguments."""
    state = _hash(scope) | 1
    result = []
    for at in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        word = WORDS[(state >> 33) % len(WORDS)]
        result.append(word.capitalize() if at % 12 == 0 else word)
        if at % 12 == 11 or at == count - 1:
            result[-1] += "."
    return " ".join(result)


def thoughts(sampler: Sampler, scope: str, count: int) -> str:
    """``count`` different sentences of thinking, at most as many as there are."""
    left = list(THOUGHTS)
    chosen = []
    for _ in range(min(count, len(left))):
        chosen.append(sampler.pick(left, scope))
        left.remove(chosen[-1])
    return " ".join(chosen)
