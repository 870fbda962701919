"""Models' names as engines, hubs and gateways write them, and whether a profile's pattern is that model.

A name is a pattern and, behind it, words that say how the model is packed or sold (a quantisation, a snapshot's date, a
vendor's tier). Any other word may name another model, so that a name with one belongs to no profile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

#: suffixes behind a colon by which gateways route a request; an engine's tag (``:8b``) is part of the model's name
_ROUTES = frozenset(
    {
        *("free", "nitro", "floor", "exacto", "online", "fastest", "cheapest", "preferred", "cloud"),
        *("baseten", "cerebras", "cohere", "deepinfra", "featherless-ai", "fireworks-ai", "groq", "hf-inference"),
        *("hyperbolic", "nebius", "novita", "nscale", "ovhcloud", "publicai", "replicate", "sambanova", "scaleway"),
        *("together", "wavespeed", "zai-org"),
    }
)
#: behind a pattern: how it is packed (bits, formats, their granularity), sold, or dated
_PACKED = (
    r"(?:fp|bf|nvfp|mxfp|int|uint)\d{1,2}|\d{1,2}bit|w\d{1,2}a\d{1,2}|i?q\d(?:-?k)?(?:-?(?:xxs|xs|xl|s|m|l|\d))?|ud|awq"
    r"|gptq|gguf|mlx|bnb|hf|unsloth|autoround|quantized|dynamic|block|channel|g\d{2,3}|original|turbo|fast|tput|maas"
    r"|preview|latest|highspeed|lightning|tee|\d{1,4}k|1m|\d{8}|\d{4}-\d{2}-\d{2}"
)
_REST = re.compile(rf"(?:-(?:{_PACKED}))*")
#: Amazon's vendors before a dot, and its revisions
_VENDOR = re.compile(r"[a-z]+\.(?=[a-z])")
_REVISION = re.compile(r"-v?\d{1,2}:\d{1,2}$")
#: the longest name that is looked at
_LONGEST = 300


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """``#`` is a digit; a dot may be written as a dot, hyphen, ``p`` or not at all between words."""
    return re.compile("".join({"#": r"\d", ".": r"[.p-]"}.get(sign, re.escape(sign)) for sign in pattern))


def spellings(model: str) -> Iterator[str]:
    """What the name may mean, its engine's tag joined to it; nothing where its suffix is of no known kind."""
    name = model.strip().lower()[:_LONGEST].partition("#")[0].rstrip("/").rpartition("/")[2]
    name = _VENDOR.sub("", _REVISION.sub("", name.partition("@")[0]), count=1).removesuffix(".gguf").replace("_", "-")
    name, colon, tag = name.partition(":")
    if not colon or tag in _ROUTES:
        yield name
    else:
        yield f"{name}-{tag.removesuffix('-cloud')}"


def length_of_match(pattern: str, model: str) -> int:
    """How many signs of the name the pattern explains, 0 where the name is not (certainly) this model's."""
    for name in spellings(model):
        found = _compiled(pattern).match(name)
        if found and _REST.fullmatch(name, found.end()):
            return found.end()
    return 0


def begins_alike(pattern: str, model: str) -> int:
    """As ``length_of_match``, whatever follows: for a hint only."""
    return max((found.end() for name in spellings(model) if (found := _compiled(pattern).match(name))), default=0)
