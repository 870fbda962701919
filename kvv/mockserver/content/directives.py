"""What the last user message asks for in so many words.

The endpoint has no model behind it. It follows plain imperatives (call a tool, reply exactly, count, write so many
words, a sum), finds statements in the conversation that answer a question, and otherwise writes neutral prose.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from kvv.mockserver.validation.request import Tool

_ECHO = re.compile(
    r"\b(?:reply|respond|answer|say|output|print|repeat|echo|write|return)\b[^\n:]{0,60}?\b(?:exactly|verbatim|literally|only|following|back)\b[^\n:]{0,60}?:\s*(.+)",
    re.I | re.S,
)
_ECHO_QUOTED = re.compile(
    r"\b(?:reply|respond|answer|say|output|print|repeat|echo|write)\b[^\n\"“'`]{0,60}[\"“`](.+?)[\"”`]", re.I | re.S
)
_ECHO_WORD = re.compile(
    r"\b(?:[Rr]eply|[Rr]espond|[Aa]nswer|[Ss]ay)\b(?: with| only| just| exactly| the| single| one)*(?: word"
    r" ([A-Za-z]\w*)| ([A-Z][A-Z0-9_-]+|\d+))\b"
)
_SUM = re.compile(r"(-?\d{1,15})\s*([-+*×x/]|plus|minus|times)\s*(-?\d{1,15})(?!\s*[-+*/×]?\s*\d)")
_COUNT = re.compile(
    r"\b(?:count|list|numbers?|print|write)\b[^.\n]{0,40}?\bfrom (\d{1,6}) (?:to|through|up to) (\d{1,6})", re.I
)
_WORDS = re.compile(r"\b(\d{1,6})[- ](?:word|token)s?\b", re.I)
_RANDOM = re.compile(r"\brandom\b", re.I)
_LENGTH = re.compile(r"\b(\d{1,3})[- ](?:character|letter|digit)", re.I)
_IMPERATIVE = re.compile(r"\b(?:call|use|using|invoke|run|execute|try)\b", re.I)
_FORBIDDEN = re.compile(r"\b(?:do not|don't|never|without)\s+(?:call|use|using|invoke|calling|invoking)", re.I)
_TWICE = re.compile(r"\b(?:twice|two times|two calls|both)\b", re.I)
_AND = re.compile(
    r"\bfor (?:city )?[\"“']?([^\W\d_][\w .-]{0,30}?)[\"”']?,? and (?:also )?(?:for )?[\"“']?([^\W\d_]\w{0,30})[\"”']?",
    re.I,
)
_FOR = re.compile(r"\bfor (?:[\"“']([^\"”']+)[\"”']|((?!the\b|me\b|this\b|a\b)[^\s,.;:!?]+(?: [A-Z][^\s,.;:!?]*)*))")
_PREAMBLE = re.compile(r"\b(?:say|write|reply|answer|tell me)\b[^\"“]{0,30}[\"“]([^\"”]+)[\"”]", re.I)
_KEYS = re.compile(r"[\"“'`]([A-Za-z_]\w{0,40})[\"”'`]")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]*\w)")


def echo(text: str) -> str | None:
    """The text to be said back, if the message asks for one."""
    if found := _ECHO.search(text):
        return _unquoted(found[1].strip())
    if found := _ECHO_QUOTED.search(text):
        return found[1]
    if found := _ECHO_WORD.search(text):
        return found[1] or found[2]
    return None


def _unquoted(text: str) -> str:
    pairs = {'"': '"', "“": "”", "'": "'", "`": "`"}
    end = pairs.get(text[:1])
    return text[1:-1] if end is not None and len(text) > 1 and text.endswith(end) and end not in text[1:-1] else text


def arithmetic(text: str) -> str | None:
    """The result of the first sum, difference, product or exact quotient in the text."""
    found = _SUM.search(text)
    if found is None:
        return None
    one, other = int(found[1]), int(found[3])
    match found[2]:
        case "+" | "plus":
            return str(one + other)
        case "-" | "minus":
            return str(one - other)
        case "/":
            return str(one // other) if other and one % other == 0 else None
    return str(one * other)


def counting(text: str) -> str | None:
    """The numbers of a requested count, separated as requested (comma and space unless lines are asked for)."""
    found = _COUNT.search(text)
    if found is None:
        return None
    separator = "\n" if re.search(r"\bline\b", text) else " " if re.search(r"\bspaces?\b", text) else ", "
    return separator.join(str(number) for number in range(int(found[1]), int(found[2]) + 1))


def word_count(text: str) -> int | None:
    """How many words are asked for; a long text without a number has 400."""
    if found := _WORDS.search(text):
        return int(found[1])
    return 400 if re.search(r"\b(?:long|essay|story|detailed)\b", text, re.I) else None


def wants_random(text: str) -> tuple[str, int] | None:
    """The alphabet and length of a requested random thing."""
    if not _RANDOM.search(text):
        return None
    if re.search(r"\bdigit\b", text, re.I) and not _LENGTH.search(text):
        return "0123456789", 1
    size = int(found[1]) if (found := _LENGTH.search(text)) else 0
    if re.search(r"\b(?:number|digits)\b", text, re.I):
        return "0123456789", size or 3
    return "abcdefghijklmnopqrstuvwxyz0123456789", size or 24


def tools_asked_for(text: str, tools: Iterable[Tool]) -> list[Tool]:
    """The declared tools that the text tells to call, in its order; a tool named n times is called n times."""
    if not _IMPERATIVE.search(text) or _FORBIDDEN.search(text):
        return []
    mentions = []
    for tool in tools:
        for found in re.finditer(rf"(?<![\w.-]){re.escape(tool.name)}(?![\w-]|\.\w)", text):
            mentions.append((found.start(), tool))
    asked = [tool for _, tool in sorted(mentions, key=lambda mention: mention[0])]
    if len(asked) == 1 and (_TWICE.search(text) or _AND.search(text)):
        return asked * 2
    return asked


def stretches(text: str, tools: list[Tool]) -> list[str]:
    """For each tool to call the part of the text that speaks of it, where its literals stand."""
    if len(tools) == 2 and tools[0].name == tools[1].name and text.count(tools[0].name) == 1:
        found = _AND.search(text)
        return [f"for {found[1]}", f"for {found[2]}"] if found else [text, text]
    starts: list[int] = []
    for tool in tools:
        at = text.find(tool.name, starts[-1] + 1 if starts else 0)
        starts.append(max(at, 0))
    return [
        text if len(tools) == 1 else text[start:end]
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True)
    ]


def bare_value(part: str) -> str | None:
    """What a call is made for, when it is said without a property's name: ``for Paris``."""
    found = _FOR.search(part)
    return (found[1] or found[2]).strip() if found else None


def preamble(text: str) -> str | None:
    """The words to say before a call, if the message puts them in quotes."""
    found = _PREAMBLE.search(text)
    return found[1] if found else None


def whole_arguments(text: str) -> Any:
    """A JSON object written out in the text, or None."""
    decoder = json.JSONDecoder()
    for found in re.finditer(r"\{", text):
        try:
            value, _ = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            continue
        return value
    return None


def literals(text: str, names: Iterable[str]) -> dict[str, Any]:
    """Values that the text states for properties: ``city "Paris"``, ``city=Paris``, ``count: 5``, ``flag true``."""
    result: dict[str, Any] = {}
    for name in names:
        where = re.search(rf"(?<![\w]){re.escape(name)}[\"'`]?(?:\s*[:=]\s*|\s+(?:is |to |as |of |set to )?)", text)
        if where is not None:
            # "exactly this text" may hold the quotation mark itself: then the last one ends it.
            exact = "exactly" in text[max(0, where.start() - 30) : where.start()]
            value = _literal(text[where.end() : where.end() + 100_000], exact=exact)
            if value is not None:
                result[name] = value
    return result


def _literal(rest: str, *, exact: bool) -> Any:
    if rest[:1] in "\"“'`" and rest[:1]:
        mark = {"“": "”"}.get(rest[0], rest[0])
        end = rest.rfind(mark) if exact else rest.find(mark, 1)
        return rest[1:end] if end > 0 else None
    if rest[:1] in ("{", "["):
        try:
            return json.JSONDecoder().raw_decode(rest)[0]
        except (ValueError, RecursionError):
            return None
    if found := _NUMBER.match(rest):
        return json.loads(found[0])
    word = re.match(r"[^\s,;.!?()]+", rest)
    if word is None:
        return None
    return {"true": True, "false": False, "null": None}.get(word[0], word[0])


def json_keys(text: str) -> list[str]:
    """Keys that the text names in quotes for a JSON answer."""
    return list(dict.fromkeys(_KEYS.findall(text)))[:20]


_COMMON = frozenset(
    [
        "the",
        "what",
        "which",
        "who",
        "when",
        "where",
        "how",
        "is",
        "are",
        "was",
        "were",
        "does",
        "did",
        "this",
        "that",
        "there",
        "with",
        "from",
        "about",
        "have",
        "has",
        "had",
        "your",
        "you",
        "and",
        "for",
        "not",
        "into",
        "says",
        "said",
        "tell",
        "me",
        "please",
        "answer",
        "question",
        "following",
        "text",
        "above",
        "document",
        "conversation",
        "only",
        "reply",
    ]
)


def statement_for(question: str, contexts: list[str]) -> str | None:
    """The sentence of the context that shares most rare words with the question, or None if none shares two of them
    (one, if it stands at most three times in all the context)."""
    words = {word for word in re.findall(r"[^\W_]{3,}", question.lower()) if word not in _COMMON}
    if not words:
        return None
    lowered = [context.lower() for context in contexts]
    frequencies = {word: sum(context.count(word) for context in lowered) for word in words}
    rare = sorted((word for word in words if 0 < frequencies[word] <= 2000), key=lambda word: frequencies[word])[:4]
    best, best_score = None, 0.0
    for context, low in zip(contexts, lowered, strict=True):
        for word in rare:
            for sentence in _sentences_with(context, low, word):
                shared = [other for other in words if other in sentence.lower()]
                score = sum(1 / frequencies[other] for other in shared if frequencies[other])
                if (
                    (len(shared) >= 2 or frequencies[word] <= 3)
                    and score > best_score
                    and sentence.strip() not in question
                ):
                    best, best_score = sentence.strip(), score
    return best


def _sentences_with(context: str, low: str, word: str) -> Iterable[str]:
    at, seen = low.find(word), 0
    while at >= 0 and seen < 200:
        start = max(context.rfind(mark, 0, at) for mark in (". ", "\n", "? ", "! ")) + 1
        ends = [end for end in (context.find(mark, at) for mark in (". ", ".\n", "\n", "? ", "! ")) if end >= 0]
        end = min(ends, default=len(context))
        yield context[start : min(end + 1, start + 1000)]
        seen += 1
        at = low.find(word, max(end, at + 1))
