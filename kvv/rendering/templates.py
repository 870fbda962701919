"""The package's own Jinja templates: strict about names, escaping by default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined


@cache
def source(name: str, package: str = "kvv.rendering") -> str:
    """The text of a file that ships beside the code of ``package``."""
    return files(package).joinpath(name).read_text("utf-8")


def environment(sources: Mapping[str, str], filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """Templates by name, over ``sources`` (name -> text), with ``filters`` beside Jinja's own."""
    made = Environment(
        loader=DictLoader(dict(sources)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= filters
    return made
