"""The endpoint's own tokeniser.

A text is cut into pieces and every piece is one token, so counting is exact, tokens join back to the text, and token
counts of separate segments add up. The order of the alternatives follows the published K2 pre-tokeniser:
letters with one leading symbol, split between lower and upper case; one to three digits; symbols; newlines; white
space. Pieces are capped in length because no merge table stands behind them, and Han
characters are tokens by themselves but for a few words. Plain English words are one token each.
"""

import hashlib
import re
import sys
import zlib
from collections.abc import Iterator
from functools import lru_cache

_HAN = "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Common words that any real vocabulary has whole; with them the published counts 36, 99, 103 and 119 come out.
_WORDS = "你是一个|中国的|准确的|你好|请用|格式|回答|北京|首都|答案|需要|包含|简洁|助手|什么|天气|我们|可以|一个"
_LEAD = r"(?:[^\w\r\n]|_)?"
_PIECE = re.compile(
    rf"{_WORDS}|[{_HAN}]"
    rf"|{_LEAD}[A-Z]{{0,8}}[^\W\d_A-Z{_HAN}]{{1,18}}(?:'(?:s|t|re|ve|m|ll|d)(?![a-z]))?"
    rf"|{_LEAD}[A-Z]{{1,8}}"
    r"|\d{1,3}"
    r"| ?(?:[^\s\w]|_){1,8}"
    r"|[^\S\r\n]{0,16}[\r\n]{1,16}"
    r"|[^\S\r\n]{1,16}(?!\S)"
    r"|[\s\S]"
)
# A word ends before a space, and none of the Han words goes on after 的, 了 or 在.
_CUT = re.compile(rf"(?<=[A-Za-z]) (?=[A-Za-z])|(?<=[的了在])(?=[{_HAN}])")
_STRETCH = 50_000
VOCABULARY = 163_584  # ids from here on are the model's special tokens


def tokenize(text: str) -> list[str]:
    """The tokens of a text, in order; joined they are the text."""
    # Interned: a long answer repeats its words, and many are held at once.
    return list(map(sys.intern, _PIECE.findall(text)))


@lru_cache(maxsize=8192)
def _count_short(text: str) -> int:
    return len(_PIECE.findall(text))


_LONG = 2048
_MAX_KNOWN = 20_000
_known_long: dict[bytes, int] = {}


def count(text: str) -> int:
    """The number of tokens of a text. Counts of long texts are remembered by hash: conversations are sent again and
    again.
    """
    if len(text) < _LONG:
        return _count_short(text)
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    known = _known_long.get(key)
    if known is None:
        known = sum(len(_PIECE.findall(part)) for part in _stretches(text))
        if len(_known_long) >= _MAX_KNOWN:
            _known_long.clear()
        _known_long[key] = known
    return known


def _stretches(text: str) -> Iterator[str]:
    """The text in parts between which no token reaches over: the matcher holds the interpreter's lock for a whole part,
    and a million tokens in one go would stop every other stream."""
    at = 0
    while at < len(text):
        cut = _CUT.search(text, at + _STRETCH)
        end = cut.start() if cut is not None else len(text)
        yield text[at:end]
        at = end


def token_id(token: str) -> int:
    """A stable id below the special tokens. Two tokens may share one; ids are for accounting, not for decoding."""
    return zlib.crc32(token.encode("utf-8", "surrogatepass")) % VOCABULARY
