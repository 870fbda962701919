"""A run folder that came from somebody else: nothing is sent, read as a key or written because of what stands in it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from kvv.mockserver import MockConfig, MockServer
from kvv.storage.seal import RECORD
from kvv.storage.store import Store

KEY, OTHER = "sk-canary-41d09b77aa", "other-canary-5f2e11c0d3"
CUT = ("check", "errors", "--case", "errors/key/*", "--model", "kimi-k3", "--max-requests", "1", "-q")
MORE = ("--max-requests", "100", "-q")
posix = pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch, kvv_cli: Any) -> Any:
    """The command line with two secrets in its environment; after ``kvv_cli``, which clears it."""
    monkeypatch.setenv("KVV_API_KEY", KEY)
    monkeypatch.setenv("OTHER_SECRET", OTHER)
    return kvv_cli


def edited(folder: Path, **values: Any) -> None:
    """run.toml with other values; None takes one away."""
    table = tomllib.loads((folder / "run.toml").read_text("utf-8")) | values
    table["origin"] = dict.fromkeys(table, "flag")  # as if the user had given everything
    (folder / "run.toml").write_text(
        tomli_w.dumps({name: value for name, value in table.items() if value is not None}), "utf-8"
    )


def refused(said: Any, *words: str) -> bool:
    assert (said.code, len(said.err.splitlines()), said.out) == (2, 1, ""), said
    assert [word for word in words if word not in said.err] == []
    return True


def another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))


@pytest.mark.parametrize("name", ["folder", "last"])
def test_a_run_goes_on_by_itself_where_it_was_started_and_with_its_own_key(name: str, keyed: Any) -> None:
    with MockServer(MockConfig(api_key=KEY)) as server:
        cut = keyed(*CUT, "--base-url", server.base_url)
        assert cut.code == 5
        ended = keyed("resume", "last" if name == "last" else str(cut.folder), *MORE)
    assert ended.code == 0, ended.said
    assert {check["verdict"] for check in ended.report["checks"]} == {"pass"}


def test_what_only_the_received_file_names_gets_no_request_and_no_key(keyed: Any, serve: Any) -> None:
    with MockServer(MockConfig(api_key=KEY)) as server, serve(status=401) as listener:
        folder = keyed(*CUT, "--base-url", server.base_url).folder
        asked = server.stats()["requests"]
        for changed, options in (
            ({"base_url": listener.url}, ("--base-url",)),
            (
                {"base_url": listener.url, "api_key_env": "OTHER_SECRET", "header_env": {"x-one": "OTHER_SECRET"}},
                ("--base-url", "--api-key-env OTHER_SECRET", "--header-env x-one=OTHER_SECRET"),
            ),
            (
                {"judge_base_url": listener.url, "judge_model": "m", "judge_api_key_env": "OTHER_SECRET"},
                ("--judge-base-url", "--judge-api-key-env OTHER_SECRET"),
            ),
            (
                {"reference_base_url": listener.url, "reference_api_key_env": "OTHER_SECRET"},
                ("--reference-base-url", "--reference-api-key-env"),
            ),
            ({"api_key_env": "OTHER_SECRET"}, ("--base-url", "--api-key-env OTHER_SECRET")),
        ):
            received = shutil.copytree(folder, folder.parent / "received", dirs_exist_ok=True)
            edited(received, **changed)
            assert refused(keyed("resume", str(received), *MORE), "RUN: ", *options)
        assert (listener.seen, server.stats()["requests"]) == ([], asked)
        # given again, it is the user's own word
        edited(received, **{"base_url": listener.url, "api_key_env": "OTHER_SECRET"})
        keyed("resume", str(received), "--base-url", listener.url, "--api-key-env", "KVV_API_KEY", *MORE)
        assert listener.seen
        assert OTHER not in str(listener.seen)


def test_a_key_taken_out_of_the_file_does_not_send_the_usual_one(keyed: Any, serve: Any) -> None:
    with serve(status=401) as listener:
        folder = keyed(*CUT[:-3], "-q", "--base-url", listener.url, "--api-key-env", "OTHER_SECRET").folder
        listener.seen.clear()
        edited(folder, api_key_env=None)
        assert refused(keyed("resume", str(folder), "-q"), "--base-url")
        assert listener.seen == []


def test_another_machine_goes_on_with_what_is_given_again(
    keyed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with MockServer(MockConfig(api_key=OTHER)) as server:
        folder = keyed(*CUT, "--base-url", server.base_url, "--api-key-env", "OTHER_SECRET").folder
        another_machine(monkeypatch, tmp_path)
        assert refused(
            keyed("resume", str(folder), *MORE), f"--base-url {server.base_url}", "--api-key-env OTHER_SECRET"
        )
        assert refused(keyed("resume", str(folder), "--base-url", server.base_url, *MORE), "--api-key-env OTHER_SECRET")
        ended = keyed("resume", str(folder), "--base-url", server.base_url, "--api-key-env", "OTHER_SECRET", *MORE)
    assert ended.code == 0, ended.said


def test_files_that_only_a_received_folder_names_are_not_read(
    keyed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    private = tmp_path / "private.toml"
    private.write_text(f'note = "{OTHER}"')
    with MockServer(MockConfig(api_key=KEY)) as server:
        folder = keyed(*CUT, "--base-url", server.base_url, "--policy", "nightly", "--data", "aime2025=fixture").folder
        asked = server.stats()["requests"]
        for option in ("policy", "profile", "tokenizer"):
            received = shutil.copytree(folder, folder.parent / "received", dirs_exist_ok=True)
            edited(received, **{option: str(private)})
            said = keyed("resume", str(received), *MORE)
            assert refused(said, f"--{option} {private}")
            assert OTHER not in said.err
        edited(received, data={"aime2025": str(private)}, reference=[str(private)], tokenizer=None)
        assert refused(keyed("resume", str(received), *MORE), f"--data aime2025={private}", f"--reference {private}")
        # to a command line @FILE means the file; a folder has the fields themselves
        edited(received, data=None, reference=None, extra_body=f"@{private}")
        assert refused(keyed("resume", str(received), *MORE), "extra_body: must be a table")
        assert server.stats()["requests"] == asked
        # names that kvv brings are nobody's files: another machine is asked for nothing but the address
        another_machine(monkeypatch, tmp_path)
        keyed("resume", str(folder), "--base-url", server.base_url, *MORE)
        checks = json.loads((folder / "report.json").read_text("utf-8"))["checks"]
        assert {check["verdict"] for check in checks} == {"pass"}


def test_a_seal_is_of_its_run_alone(keyed: Any, serve: Any, tmp_path: Path) -> None:
    with serve(status=401) as listener:
        own = keyed(*CUT, "--base-url", listener.url).folder
        with Store.open(own / "store.sqlite") as store:
            seal = store.meta()[RECORD]
        with pytest.MonkeyPatch.context() as patch:
            another_machine(patch, tmp_path)
            strange = keyed(*CUT, "--base-url", listener.url, out=tmp_path / "strange").folder
        listener.seen.clear()
        tries: list[Any] = [seal, {"options": [], "mac": seal["mac"]}, {"options": ["base_url"], "mac": "0" * 64}]
        tries += [
            {"options": ["base_url"], "mac": "\udcff"},
            {"options": [[]], "mac": "x"},
            {"mac": "x"},
            [],
            "x",
            None,
        ]
        for forged in tries:
            with Store.open(strange / "store.sqlite") as store:
                store.set_meta(RECORD, forged)
            assert refused(keyed("resume", str(strange), *MORE), "--base-url")
        assert listener.seen == []


def test_a_path_that_only_the_file_names_is_not_written(keyed: Any, tmp_path: Path) -> None:
    made = keyed("run", "ocrbench", "--limit", "2", "-q")
    folder = made.folder
    victim = tmp_path / "victim.jsonl"
    edited(folder, as_reference=str(victim))
    assert refused(keyed("resume", str(folder), "-q"), f"--as-reference {victim}")
    assert keyed("score", str(folder), "-q").code == made.code
    assert not victim.exists()
    assert keyed("resume", str(folder), "--as-reference", str(victim), "-q").code in (
        made.code,
        3,
    )  # our own endpoint has forgotten its counts
    assert victim.exists()


def test_the_reference_of_merged_shards_is_written_where_this_user_said(keyed: Any, tmp_path: Path) -> None:
    own, victim = tmp_path / "own.jsonl", tmp_path / "victim.jsonl"
    shards = [
        keyed("run", "ocrbench", "--limit", "4", "-q", "--shard", f"{i}/2", out=Path(f"s{i}")).folder for i in (1, 2)
    ]
    edited(shards[0], as_reference=str(victim))
    names = [str(shard) for shard in shards]
    assert refused(keyed("merge", *names, "--out", "merged"), "--as-reference FILE")
    assert not victim.exists()
    assert not Path("merged").exists()
    assert keyed("merge", *names, "--out", "merged", "--as-reference", str(own)).code == 0
    assert (own.exists(), victim.exists()) == (True, False)


def test_a_gate_measures_again_only_where_this_user_said(keyed: Any, serve: Any) -> None:
    with MockServer(MockConfig(api_key=KEY)) as server, serve(status=401) as listener:
        folder = keyed(*CUT[:-3], "-q", "--base-url", server.base_url).folder
        base = shutil.copytree(folder, folder.parent.parent / "base")
        gate = ("gate", str(folder), "--baseline", str(base), "--allow-different", "all", "--confirm-now")
        before = keyed(*gate)
        assert "has no proof" not in before.said
        edited(
            folder, base_url=listener.url, api_key_env="OTHER_SECRET", sandbox="none", as_reference="nobody-asks-for-it"
        )
        assert refused(keyed(*gate), "--base-url", "--api-key-env OTHER_SECRET", "--sandbox none")
        assert listener.seen == []
        again = keyed(*gate, "--base-url", server.base_url, "--api-key-env", "KVV_API_KEY", "--sandbox", "bwrap")
        assert (again.code, "has no proof" in again.said) == (before.code, False)


def test_no_sandbox_is_a_word_of_the_command_line_alone(keyed: Any, serve: Any) -> None:
    with serve(status=401) as listener:
        Path("kvv.toml").write_text('sandbox = "none"\n', "utf-8")
        for verb in ("run", "check", "plan"):
            asked = (verb, *CUT[1:], "--base-url", listener.url)
            assert refused(keyed(*asked), "kvv.toml: sets sandbox", "--trust-config")
            assert refused(keyed(*asked, "--trust-config"), "sandbox in kvv.toml", "--sandbox none")
        Path("kvv.toml").unlink()
        assert listener.seen == []
        cut = keyed(*CUT, "--base-url", listener.url, "--sandbox", "none")  # as a flag it is taken, and kept
        folder = cut.folder
        assert f"kvv resume {folder} --sandbox none" in cut.err
        listener.seen.clear()
        assert refused(keyed("resume", str(folder), *MORE), "--sandbox none")
        assert listener.seen == []
        keyed("resume", str(folder), "--sandbox", "none", *MORE)
        assert listener.seen


@posix
def test_the_key_of_the_seals_is_the_users_alone_and_no_run_needs_it(
    keyed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with MockServer(MockConfig(api_key=KEY)) as server:
        folder = keyed(*CUT, "--base-url", server.base_url).folder
        (key,) = (tmp_path / "state" / "kvv").iterdir()
        assert (stat.S_IMODE(key.stat().st_mode), stat.S_IMODE(key.parent.stat().st_mode)) == (0o600, 0o700)
        assert not any(key.read_bytes() in path.read_bytes() for path in folder.iterdir())
        (tmp_path / "no-folder").write_text("")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no-folder"))
        unsealed = keyed(*CUT, "--base-url", server.base_url, out=tmp_path / "unsealed")
        assert unsealed.code == 5
        assert refused(keyed("resume", str(unsealed.folder), *MORE), "--base-url")


# --- links, pipes ----------------------------------------------------------------------------------


def symbolic(place: Path, target: Path) -> None:
    place.symlink_to(target)


def hard(place: Path, target: Path) -> None:
    os.link(target, place)


def pipe(place: Path, target: Path) -> None:
    os.mkfifo(place)


@posix
@pytest.mark.parametrize("put", [symbolic, hard, pipe])
def test_reports_replace_what_stands_in_their_place(
    put: Callable[[Path, Path], None], kvv_cli: Any, tmp_path: Path
) -> None:
    folder = kvv_cli("check", "params", "-q").folder
    victim = tmp_path / "victim"
    victim.write_text("precious")
    names = ["report.json", "report.md", "report.html", "junit.xml", "leaderboard.json"]
    for name in names:
        (folder / name).unlink()
        put(folder / name, victim)
    assert kvv_cli("score", str(folder), "-q").code == 0
    assert victim.read_text() == "precious"
    assert all(
        (folder / name).is_file() and not (folder / name).is_symlink() and (folder / name).stat().st_nlink == 1
        for name in names
    )
    assert json.loads((folder / "report.json").read_text("utf-8"))["verdict"] == "pass"
    assert not list(folder.glob(".*"))
    (tmp_path / "to").mkdir()
    put(tmp_path / "to" / "report.md", victim)
    assert kvv_cli("report", str(folder), "--format", "md", "--to", str(tmp_path / "to")).code == 0
    assert (victim.read_text(), (tmp_path / "to" / "report.md").is_symlink()) == ("precious", False)


@posix
def test_a_store_that_is_a_link_or_a_pipe_is_not_written(kvv_cli: Any, tmp_path: Path) -> None:
    made = kvv_cli("check", "errors", "--case", "errors/key/*", "-q").folder
    victim = tmp_path / "victim"
    victim.write_bytes((made / "store.sqlite").read_bytes())
    before = victim.read_bytes()
    for name in ("store.sqlite", "store.sqlite-wal", "store.sqlite-shm", "store.sqlite-journal", "store.sqlite-lock"):
        for put in (symbolic, hard, pipe):
            folder = shutil.copytree(made, tmp_path / f"{name}-{put.__name__}")
            (folder / name).unlink(missing_ok=True)
            put(folder / name, victim)
            for verb in ("score", "resume"):
                assert refused(kvv_cli(verb, str(folder), "-q"), "RUN: ")
    assert victim.read_bytes() == before


@posix
def test_a_configuration_that_is_a_pipe_is_not_waited_for(kvv_cli: Any) -> None:
    folder = kvv_cli("check", "errors", "--case", "errors/key/*", "-q").folder
    (folder / "run.toml").unlink()
    os.mkfifo(folder / "run.toml")
    assert refused(kvv_cli("resume", str(folder), "-q"), "run.toml: is no plain file")
    (folder / "run.toml").unlink()
    (folder / "run.toml").symlink_to("/dev/zero")
    assert refused(kvv_cli("resume", str(folder), "-q"), "run.toml: is no plain file")


@posix
@pytest.mark.parametrize("put", [symbolic, pipe])
def test_a_report_that_is_a_pipe_or_a_link_is_not_read(put: Callable[[Path, Path], None], kvv_cli: Any) -> None:
    folder = kvv_cli("check", "errors", "--case", "errors/key/*", "-q").folder
    report = folder / "report.json"
    moved = report.rename(folder.parent / "moved.json")
    put(report, moved)
    said = kvv_cli("history", str(folder.parent))
    assert (said.code, "Traceback" in said.said) == (2, False)
    assert "is no plain file" in said.said
    report.unlink()
    moved.rename(report)
    assert "is no plain file" not in kvv_cli("history", str(folder.parent)).said


@posix
def test_a_suites_own_files_do_not_leave_the_folder(
    kvv_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvv.cases.suite import Suite

    folder = kvv_cli("check", "params", "-q").folder
    (tmp_path / "outside").mkdir()
    (folder / "more").symlink_to(tmp_path / "outside")
    monkeypatch.setattr(Suite, "files", lambda self, results, context: [("more/file.txt", "text")])
    said = kvv_cli("score", str(folder), "-q")
    assert (said.code, "outside of the run's folder" in said.err) == (2, True)
    assert not list((tmp_path / "outside").iterdir())
    (folder / "more").unlink()
    assert kvv_cli("score", str(folder), "-q").code == 0
    assert (folder / "more" / "file.txt").read_text() == "text"
