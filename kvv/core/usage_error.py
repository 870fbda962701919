"""What is wrong with a command line or a configuration, said in one line. Imports nothing: `kvv --help` must be
quick.
"""

from __future__ import annotations

#: as in kvv.core.Surface, which takes a while to import
SURFACES = ("vendor", "engine", "official")
TIERS = ("smoke", "nightly", "full")


class ConfigError(ValueError):
    """A usage or configuration error: one line that names the option; exit code 2."""


def text_problem(value: object) -> str | None:
    """Why a text, or one of several, can be no option's value; None where nothing is wrong. The text itself is not
    repeated.

    NUL ends a path for the operating system; a lone surrogate stands for a byte that is no UTF-8 and can be neither
    stored nor sent; an empty text is most often a shell variable that is not set.
    """
    match value:
        case str():
            if not value.strip():
                return "is empty"
            if "\0" in value:
                return "holds a NUL character"
            return None if value.isascii() or _is_unicode(value) else "is no valid UTF-8 text"
        case list() | tuple():
            return next(filter(None, map(text_problem, value)), None)
        case dict():
            return text_problem([*value.keys(), *value.values()])
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
