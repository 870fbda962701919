"""``moonshot_map.toml``: which of our cases cover the public verifier's contract tests."""

from __future__ import annotations

import fnmatch
import tomllib
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KvvFile(_Table):
    """A folder or file of its tests; ``ids`` is how many test ids it is reported to have, None where nobody says."""

    path: str
    ids: int | None = None


class KvvTest(_Table):
    """What a test asserts. ``cases`` are globs of our case ids; ``why`` says why there is none, or what changes it."""

    file: str
    asserts: str
    cases: tuple[str, ...] = ()
    why: str = ""

    @model_validator(mode="after")
    def _says_something(self) -> KvvTest:
        if not self.cases and not self.why:
            raise ValueError(f"{self.asserts!r} has neither cases nor a reason")
        return self

    def covers(self, case_id: str) -> bool:
        return any(fnmatch.fnmatchcase(case_id, glob) for glob in self.cases)


class KvvMap(_Table):
    source: str
    revision: str
    file: tuple[KvvFile, ...]
    test: tuple[KvvTest, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _files_are_known(self) -> KvvMap:
        unknown = {test.file for test in self.test} - {entry.path for entry in self.file}
        if unknown:
            raise ValueError(f"no file {sorted(unknown)[0]!r}")
        return self


@cache
def load_map() -> KvvMap:
    return KvvMap.model_validate(tomllib.loads(files("kvv.reporting").joinpath("moonshot_map.toml").read_text("utf-8")))
