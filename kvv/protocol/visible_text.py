"""The visible completion where a server leaves its thinking in the content. Pure."""

from __future__ import annotations

import re

#: as inspect-ai 0.3.158 reads it (``model/_reasoning.py``), the version of KVV's lock file: with its case, anywhere
_INSPECT = re.compile(r"<think([^>]*)>(.*?)</think>", re.DOTALL)
_START = re.compile(r"\s*<think(?:ing)?\b[^>]{0,100}>", re.IGNORECASE)
_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


def visible(answer: str) -> str:
    """The answer without a whole think block at its beginning; inspect-ai, under which KVV runs, splits one off before
    scoring.

    A block that never ends stays: whether an answer is in it is for the scorer to find out.
    """
    start = _START.match(answer)
    end = _END.search(answer, start.end()) if start else None
    return answer[end.end() :] if end else answer


def inspect_visible(answer: str, *, reasoned: bool) -> str:
    """What KVV scores: inspect-ai takes the first whole ``<think>`` block off wherever it stands, unless the answer
    came with a field for its reasoning.
    """
    found = None if reasoned or "</think>" not in answer else _INSPECT.search(answer)
    return (answer[: found.start()] + answer[found.end() :]).strip() if found else answer
