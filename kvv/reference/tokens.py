"""The endpoint's own tokeniser.

A text is cut into pieces and every piece is one token, so counting is exact, tokens join back to the text, and token
counts of separate segments add up. The order of the alternatives follows the published K2 pre-tokeniser (contract.md
3.2): letters with one leading symbol, split between lower and upper case; one to three digits; symbols with trailing
newlines; newlines; white space. Pieces are capped in length because no merge table stands behind them, and a Han
character is a token by itself. Plain English words are one token each.
"""

import hashlib
import re
import zlib
from functools import lru_cache

_HAN = "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LEAD = r"(?:[^\w\r\n]|_)?"
_PIECE = re.compile(
    rf"[{_HAN}]"
    rf"|{_LEAD}[A-Z]{{0,8}}[^\W\d_A-Z{_HAN}]{{1,18}}(?:'(?:s|t|re|ve|m|ll|d)(?![a-z]))?"
    rf"|{_LEAD}[A-Z]{{1,8}}"
    r"|\d{1,3}"
    r"| ?(?:[^\s\w]|_){1,8}[\r\n]{0,8}"
    r"|[^\S\r\n]{0,16}[\r\n]{1,16}"
    r"|[^\S\r\n]{1,16}(?!\S)"
    r"|[\s\S]"
)
VOCABULARY = 163_584  # ids from here on are the model's special tokens (contract.md 3.1)


def tokenize(text: str) -> list[str]:
    """The tokens of a text, in order; joined they are the text."""
    return _PIECE.findall(text)


@lru_cache(maxsize=8192)
def _count_short(text: str) -> int:
    return len(_PIECE.findall(text))


_LONG = 2048
_MAX_KNOWN = 20_000
_known_long: dict[bytes, int] = {}


def count(text: str) -> int:
    """The number of tokens of a text. Counts of long texts are remembered by hash: conversations are sent again and again."""
    if len(text) < _LONG:
        return _count_short(text)
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    known = _known_long.get(key)
    if known is None:
        known = len(_PIECE.findall(text))
        if len(_known_long) >= _MAX_KNOWN:
            _known_long.clear()
        _known_long[key] = known
    return known


def token_id(token: str) -> int:
    """A stable id below the special tokens. Two tokens may share one; ids are for accounting, not for decoding."""
    return zlib.crc32(token.encode("utf-8", "surrogatepass")) % VOCABULARY
