"""TOML that anybody may have written: ``tomllib`` takes square time over a key of many parts and raises RecursionError
for what is nested deep.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

TomlError = tomllib.TOMLDecodeError

#: parts of a dotted key, and tables within each other; no file of ours has six
PARTS = 100
_LONG_KEY = re.compile(rf"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){{{PARTS}}}""")


def parse_toml(text: str) -> dict[str, Any]:
    """Raises TomlError, of one line, for all that is no TOML, and ValueError for a number of thousands of digits."""
    if _LONG_KEY.search(text):
        raise TomlError(f"has a key of more than {PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TomlError("is nested too deep") from None
