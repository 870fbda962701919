"""The examples under docs/: YAML that parses, shell that parses, and kvv commands that this command line knows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvv.cli.main import build_parser
from kvv.planning.shard import parse_shard
from kvv.profiles.policy import policy_ids

DOCS = Path(__file__).resolve().parents[2] / "docs"
JOBS = ["nightly.yml", "shards.yml", "shards-kubernetes.yml"]
EXAMPLES = [*JOBS, "nightly.sh"]


def commands(text: str) -> list[list[str]]:
    """The kvv lines of a shell text, with variables and expressions replaced by plain words."""
    text = re.sub(r"\$\{\{.*?\}\}/", "1/", text)
    text = re.sub(r"\$\(\(.*?\)\)", "1", re.sub(r"\$\{\{.*?\}\}", "1", text))
    found = re.findall(
        r"(?:^|[\s(])(kvv (?:run|gate|report|history|merge|baseline|compare|nightly|prune) [^|\n`)#>]*)",
        text,
        re.MULTILINE,
    )
    return [shlex.split(re.sub(r"\$[\w@]+|\"\$[\w@]+\"", "x", line))[1:] for line in found]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_command_in_an_example_is_one_of_ours(name: str) -> None:
    text = "\n".join(
        line for line in (DOCS / name).read_text("utf-8").splitlines() if not line.lstrip().startswith("#")
    )
    found = commands(text)
    assert found
    for command in found:
        arguments = build_parser().parse_args(command)
        assert getattr(arguments, "policy", None) in (None, *policy_ids())
        if getattr(arguments, "shard", None):
            parse_shard(arguments.shard)


def test_a_wrong_command_would_be_seen() -> None:
    (command,) = commands("run: kvv gate last --no-such-option 3\n")
    with pytest.raises(SystemExit):
        build_parser().parse_args(command)


@pytest.mark.parametrize("name", ["nightly.yml", "shards.yml"])
def test_a_workflow_has_triggers_jobs_and_pinned_actions(name: str) -> None:
    table: dict[Any, Any] = yaml.safe_load((DOCS / name).read_text("utf-8"))
    assert {"name", "jobs", "permissions"} <= set(table)
    # YAML 1.1 reads the key `on` as true
    assert table.get("on", table.get(True))
    for job in table["jobs"].values():
        assert job["runs-on"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
    text = (DOCS / name).read_text("utf-8")
    assert "${{ secrets.KVV_API_KEY }}" in text
    assert "sk-" not in text


def test_the_matrix_and_the_indexed_job_ask_for_every_shard_once() -> None:
    matrix = yaml.safe_load((DOCS / "shards.yml").read_text("utf-8"))["jobs"]["part"]["strategy"]["matrix"]["shard"]
    assert matrix == list(range(1, len(matrix) + 1))
    assert f"/{len(matrix)} " in (DOCS / "shards.yml").read_text("utf-8")
    job = yaml.safe_load((DOCS / "shards-kubernetes.yml").read_text("utf-8"))
    assert (job["kind"], job["spec"]["completionMode"]) == ("Job", "Indexed")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    script = container["args"][0]
    assert f"/{job['spec']['completions']} " in script
    assert any("secretKeyRef" in str(entry.get("valueFrom")) for entry in container["env"])
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0


def fake_kvv(folder: Path, code: int) -> dict[str, str]:
    """A kvv that notes its calls; `nightly` ends with this exit code."""
    folder.mkdir()
    script = f"""#!/bin/sh
echo "$@" >> {folder}/calls
[ "$1" != nightly ] || exit {code}
"""
    (folder / "kvv").write_text(script, "utf-8")
    (folder / "kvv").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.skipif(shutil.which("sh") is None, reason="no POSIX shell on this machine")
@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_the_nightly_script_ends_as_the_night_did(tmp_path: Path, code: int) -> None:
    environment = fake_kvv(tmp_path / "bin", code) | {"KVV_NOTIFY": "https://hook.example/secret"}
    ran = subprocess.run(
        ["sh", str(DOCS / "nightly.sh"), str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    calls = (tmp_path / "bin/calls").read_text("utf-8").splitlines()
    assert ran.returncode == code, ran.stderr
    assert [call.split()[0] for call in calls] == ["nightly", "prune"]
    assert calls[0].endswith("-q --notify env:KVV_NOTIFY")
    assert "secret" not in "".join(calls)
