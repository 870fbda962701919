"""The documentation: YAML that parses, shell that parses, and kvv commands that this command line knows."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvv.cli.main import build_parser
from kvv.core.exit_codes import ExitCode
from kvv.planning.shard import parse_shard
from kvv.profiles.policy import policy_ids

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"))
)
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


@pytest.mark.parametrize("name", ["docs/nightly.yml", "docs/shards.yml", ".github/workflows/release.yml"])
def test_a_workflow_has_triggers_jobs_and_pinned_actions(name: str) -> None:
    table: dict[Any, Any] = yaml.safe_load((ROOT / name).read_text("utf-8"))
    assert {"name", "jobs", "permissions"} <= set(table)
    # YAML 1.1 reads the key `on` as true
    assert table.get("on", table.get(True))
    for job in table["jobs"].values():
        assert job["runs-on"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
        assert not any("${{" in step.get("run", "") for step in job["steps"] if "release" in name)
    text = (ROOT / name).read_text("utf-8")
    assert ("${{ secrets.KVV_API_KEY }}" in text) == name.startswith("docs/")
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


@cache
def parser() -> argparse.ArgumentParser:
    return build_parser()


def written_commands(page: str) -> list[list[str]]:
    """The kvv commands of a page's shell blocks, and those in running text that have arguments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exported = {name: value.strip('"') for name, value in re.findall(r"^export (\w+)=(\".*?\")", "".join(blocks), re.M)}
    running = re.findall(r"`(kvv [a-z]+ [^`]+)`", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL))
    found = []
    for line in [*"".join(blocks).replace("\\\n", " ").splitlines(), *running]:
        for name, value in exported.items():
            line = re.sub(rf"\${name}\b", value, line)
        if match := re.search(r"(?:^|[ /])kvv (?=[a-z])(.*)", line):
            found.append(shlex.split(match[1].removesuffix("&"), comments=True))
    return found


@pytest.mark.parametrize("name", PAGES)
def test_every_command_in_a_page_is_one_of_ours(name: str) -> None:
    page = (ROOT / name).read_text("utf-8")
    for command in written_commands(page):
        try:
            parser().parse_args(command)
        except (SystemExit, ValueError) as error:
            pytest.fail(f"{name}: kvv {shlex.join(command)}: {error}")
    assert set(re.findall(r"`kvv ([a-z0-9]+)`", page)) <= known_verbs()


def known_verbs() -> set[str]:
    return next(set(action.choices) for action in parser()._actions if action.dest == "verb" and action.choices)


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_to_a_file(name: str) -> None:
    """MkDocs checks pages among each other; README and CONTRIBUTING lie outside of it."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / name).read_text("utf-8"))
    # reference pages are made when the documentation is built
    missing = [link for link in links if not ((ROOT / name).parent / link).exists() and "/reference/" not in link]
    assert [link for link in missing if not link.startswith("reference/")] == []


def test_readme_is_short_and_states_the_exit_codes() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 150
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == [int(code) for code in ExitCode]
    assert "independent project and is not affiliated with Moonshot AI" in text
    assert (DOCS / "images/report.png").stat().st_size < 200_000


def test_commands_are_found_in_blocks_and_in_text() -> None:
    page = '```sh\nexport ASK="--model m"\n.venv/bin/kvv run $ASK   # why\n```\nSee `kvv show --rule ID last`, `kvv`.\n'
    assert written_commands(page) == [["run", "--model", "m"], ["show", "--rule", "ID", "last"]]
    assert sum(len(written_commands((ROOT / name).read_text("utf-8"))) for name in PAGES) > 100
    assert "nightly" in known_verbs()
    assert "no-such" not in known_verbs()


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


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("code", "on_inconclusive", "ended"),
    [(0, "fail", 0), (1, "warn", 1), (3, "fail", 3), (3, "warn", 0), (5, "warn", 0)],
)
def test_the_action_ends_as_the_run_did_and_says_so(
    tmp_path: Path, code: int, on_inconclusive: str, ended: int
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    script = f"""#!/bin/sh
for word; do printf '%s|' "$word" >> {tmp_path}/calls; done
mkdir -p reports/A && printf '%s' '{{"headline": "FAIL: 1 of 12\\nexit-code=0"}}' > reports/A/report.json
exit {code}
"""
    (tmp_path / "bin/kvv").write_text(script, "utf-8")
    (tmp_path / "bin/kvv").chmod(0o755)
    given = {
        "INPUT_COMMAND": "run",
        "INPUT_ARGUMENTS": "--tier smoke --case 'a b*' $(touch x)",
        "INPUT_MAX_COST": "5",
        "INPUT_ON_INCONCLUSIVE": on_inconclusive,
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    ran = subprocess.run(
        ["bash", str(ROOT / ".github/action.sh"), str(tmp_path / "bin")],
        env=os.environ | given,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == ended, ran.stderr
    assert (tmp_path / "calls").read_text("utf-8") == "run|--tier|smoke|--case|a b*|$(touch|x)|--max-cost|5|"
    assert (tmp_path / "output").read_text("utf-8") == f"exit-code={code}\nheadline=FAIL: 1 of 12 exit-code=0\n"
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("name", "value"),
    [("INPUT_ARGUMENTS", "--case 'a"), ("INPUT_COMMAND", "serve"), ("INPUT_ON_INCONCLUSIVE", "no")],
)
def test_the_action_refuses_inputs_that_it_cannot_read(tmp_path: Path, name: str, value: str) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    given = {"INPUT_COMMAND": "run", "INPUT_ARGUMENTS": "", "INPUT_MAX_COST": "", "INPUT_ON_INCONCLUSIVE": "fail"}
    ran = subprocess.run(
        ["bash", str(ROOT / ".github/action.sh"), str(tmp_path)],
        env=os.environ | given | {name: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout.count("::error title=kvv::the input")) == (2, 1)


def test_the_action_passes_every_input_on_as_a_variable() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    text = (ROOT / "action.yml").read_text("utf-8")
    assert [name for name in action["inputs"] if f"inputs.{name}" not in text] == []
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert ("run" in step) == ("shell" in step) != ("uses" in step)
