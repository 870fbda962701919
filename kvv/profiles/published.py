"""Means that a model's owner publishes: the weaker kind of reference. They can show a loss,
never prove parity.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Mean(_Table):
    """``value`` from 0 to 1 over ``n`` questions; ``variant`` of the data, "" for the suite's default one."""

    suite: str
    value: Annotated[float, Field(ge=0, le=1)]
    n: Annotated[int, Field(gt=0)]
    variant: str = ""


class PublishedRow(_Table):
    """A vendor's row of the public leaderboard; ``values`` from 0 to 1 by the column's ``key``, which the suite
    declares.
    """

    vendor: str
    values: dict[str, Annotated[float, Field(ge=0, le=1)]]


class PublishedMeans(_Table):
    """``mean`` are the owner's own, which runs are held to; ``row`` are the leaderboard's, which are shown beside
    measured ones.

    ``effort`` and ``agent`` are what the owner says it was asked with, ``judge`` the model that graded; "" where it
    does not say.
    """

    source: str
    leaderboard: str
    model: str
    effort: str = ""
    agent: str = ""
    judge: str = ""
    mean: tuple[Mean, ...]
    row: tuple[PublishedRow, ...] = ()


def load_published(profile: str) -> PublishedMeans | None:
    """What ships for a profile, None where nothing does."""
    entry = files("kvv.profiles").joinpath("published", f"{profile}.toml")
    return PublishedMeans.model_validate(tomllib.loads(entry.read_text("utf-8"))) if entry.is_file() else None
