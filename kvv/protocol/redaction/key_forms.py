"""What looks like a key, wherever nobody said that it is one: in the path of an address, in a field of a body."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

#: the forms that issuers give their keys, so that scanners find them: a known beginning and enough that is random
_ISSUED = re.compile(
    r"(?:sk|pk|rk|gsk|nvapi|xai|hf|r8|gh[oprsu]|github_pat|glpat|xox[abprs]|pplx|tgp|csk)[-_][A-Za-z0-9_-]{12,}"
    r"|AKIA[0-9A-Z]{16}|AIza[A-Za-z0-9_-]{30,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}[A-Za-z0-9._-]*"
)
_SCHEME = re.compile(r"(?:Bearer|Basic)\s+\S{8,}", re.IGNORECASE)
#: names of fields whose text is a secret, whatever its form
_SECRET_NAME = re.compile(
    r"(?:.*[_-])?(?:api[_-]?key|secret|password|passwd|access[_-]?token|authorization)", re.IGNORECASE
)
#: a segment of a path that nobody would choose as a name; identifiers in hexadecimal, as of accounts, are no secrets
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9_~-]{24,}")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F-]+")


def is_issued_key(text: str) -> bool:
    """Whether the text has the form of a key of some issuer and nothing beside it; names with words alone have not."""
    text = text.strip()
    return bool(_SCHEME.fullmatch(text)) or (bool(_ISSUED.fullmatch(text)) and any(c.isdigit() for c in text))


def keys_in_path(path: str) -> list[str]:
    """Segments of an address's path that must not be shown, as they are written."""
    return [part for part in path.split("/") if _is_secret_segment(unquote(part))]


def _is_secret_segment(text: str) -> bool:
    return is_issued_key(text) or bool(_RANDOM.fullmatch(text) and not _HEXADECIMAL.fullmatch(text))


def keys_in_body(value: Any, name: str = "") -> Iterator[str]:
    """Paths of the fields of a JSON value that hold what looks like a key; the key itself is not repeated."""
    match value:
        case str() if is_issued_key(value) or (len(value) >= 8 and _SECRET_NAME.fullmatch(name.rpartition(".")[2])):
            yield name
        case dict():
            for key, item in value.items():
                yield from keys_in_body(item, f"{name}.{key}" if name else str(key))
        case list():
            for number, item in enumerate(value):
                yield from keys_in_body(item, f"{name}.{number}" if name else str(number))
