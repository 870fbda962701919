"""What a command that sends nothing must not wait for. No clock here: the time to start is mostly that of imports."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HTTP = {"aiohttp", "kvv.transport.client", "kvv.execution.executor"}
DATA = {"pandas", "pyarrow", "datasets", "math_verify", "sympy"}
STORE = {"sqlite3", "kvv.storage.store.store"}
NUMBERS = {"numpy", "scipy", "jsonschema", "referencing"}
SHOWN = {"rich", "starlette", "uvicorn"}

#: in this order in one process, so that each may import no more than the ones before it and itself
COMMANDS = [
    (["--help"], HTTP | DATA | STORE | NUMBERS | SHOWN | {"pydantic", "asyncio"}),
    (["list"], HTTP | DATA | STORE | NUMBERS | SHOWN | {"asyncio"}),
    (["list", "cases"], HTTP | DATA | STORE | NUMBERS | SHOWN | {"asyncio"}),
    (["plan"], HTTP | DATA | STORE | SHOWN | {"jsonschema", "scipy.stats"}),
    (["doctor"], HTTP | DATA | STORE | SHOWN | {"jsonschema", "scipy.stats"}),
]

SCRIPT = """
import contextlib, io, json, sys
from kvv.cli.main import main
loaded = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(command)
    loaded.append(sorted(sys.modules))
print(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[set[str]]:
    commands = json.dumps([command for command, _ in COMMANDS])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, commands],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path_factory.mktemp("empty"),  # no kvv.toml of anybody's
    )
    return [set(names) for names in json.loads(done.stdout)]


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[" ".join(command) for command, _ in COMMANDS])
def test_a_command_imports_nothing_that_it_does_not_need(loaded: list[set[str]], number: int) -> None:
    _, unneeded = COMMANDS[number]
    assert not loaded[number] & unneeded


def test_the_modules_looked_at_are_there_to_be_imported(loaded: list[set[str]]) -> None:
    """`plan` draws a permutation and computes power: were the names misspelt, the test above could not fail."""
    assert {"numpy", "scipy.special"} <= loaded[3]
    assert {"numpy", "scipy"} & loaded[0] == set()
