"""The hub and offline copies, against a loopback server in its place: libraries read their switches at import, hence
one process a test.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from kvv.data import DataError, cache_folder, canonical_sha256, copy_folder, load, pull, verify, where
from kvv.data import hub as hub_room
from kvv.data.copies import MANIFEST

COMMIT = "0123456789abcdef0123456789abcdef01234567"
#: the commit that suites/aime2025/dataset.toml pins
PINNED = "563bb8404243c5f09de6ec262f2db674fe5bce9b"
ROWS = [{"problem": f"What is {i} + 0?", "answer": str(i), "id": str(i)} for i in range(3)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
FILES = {"test.jsonl": LINES, "README.md": b"# card\n"}


def _fake_hub() -> ModuleType:
    found = importlib.util.spec_from_file_location("fake_hub", Path(__file__).parent / "fake_hub.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["fake_hub"] = module  # dataclasses look their module up
    found.loader.exec_module(module)
    return module


FAKE = _fake_hub()

#: the pinned content replaced by that of ROWS: everything else is the shipped description
PATCH = f"""
import pathlib
import kvv.data, kvv.data.copies
from kvv.data import DataError, load, load_spec, pull
small = load_spec("aime2025").model_copy(update={{"rows": 3, "sha256": {canonical_sha256(ROWS, ROWS[0])!r}}})
def use(spec):
    kvv.data.load_spec = kvv.data.copies.load_spec = lambda name, variant="": spec
def said(action):
    try: print("no error:", action())
    except DataError as error: print(error)
use(small)
"""


def run(code: str, folder: Path, **environment: str) -> list[str]:
    clean = {
        name: value for name, value in os.environ.items() if "proxy" not in name.lower() and not name.startswith("HF_")
    }
    env = {**clean, "HF_HOME": str(folder / "hf"), "KVV_CACHE": str(folder / "cache"), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PATCH + code], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # neither progress bars nor the libraries' chatter where there is no terminal
    return done.stdout.splitlines()


@dataclass(frozen=True, kw_only=True)
class Story:
    """What three processes said: one with the hub, one told to stay offline, one after the hub has gone; and what the
    hub was asked.
    """

    folder: Path
    endpoint: str
    online: list[str]
    offline: list[str]
    alone: list[str]
    asked: list[str]
    asked_offline: list[str]


ONLINE = """
d = load('aime2025'); print(len(d.rows), d.revision, d.origin, d.rows[2]['answer'])
print(pull('aime2025').ok, pull('aime2025').commit)
d = load('aime2025'); print(len(d.rows), d.revision, d.origin.partition(' (')[0])
print(pull('aime2025', into=pathlib.Path(INTO), mirror=MIRROR, revision='v2').ok)
"""

OFFLINE = """
print(len(load('aime2025').rows))
said(lambda: pull('aime2025'))
"""

ALONE = """
print(len(load('aime2025').rows), len(load('aime2025', offline=True).rows))
said(lambda: pull('aime2025'))
use(small.model_copy(update={'repo': 'never/seen'}))
said(lambda: load('aime2025'))
said(lambda: load('aime2025', offline=True))
"""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("hub")
    with FAKE.serve("math-ai/aime25", FILES) as hub:
        code = ONLINE.replace("INTO", repr(str(folder / "elsewhere"))).replace("MIRROR", repr(hub.endpoint))
        online = run(code, folder, HF_ENDPOINT=hub.endpoint)
        asked = list(hub.requests)
        hub.requests.clear()
        offline = run(OFFLINE, folder, HF_ENDPOINT=hub.endpoint, HF_HUB_OFFLINE="1", KVV_CACHE=str(folder / "none"))
        asked_offline = list(hub.requests)
    alone = run(ALONE, folder, HF_ENDPOINT=hub.endpoint, KVV_CACHE=str(folder / "none"))
    return Story(
        folder=folder,
        endpoint=hub.endpoint,
        online=online,
        offline=offline,
        alone=alone,
        asked=asked,
        asked_offline=asked_offline,
    )


def test_the_hub_is_read_through_the_mirror_and_the_commit_is_named(story: Story) -> None:
    assert story.online[0] == f"3 {COMMIT} math-ai/aime25@{COMMIT} 2"
    assert any(request.endswith(f"/resolve/{COMMIT}/test.jsonl") for request in story.asked)


def test_a_copy_is_pulled_replaced_and_then_used(story: Story) -> None:
    assert story.online[1:3] == [f"True {COMMIT}", f"3 {COMMIT} math-ai/aime25"]
    manifest = json.loads((story.folder / "cache" / "datasets" / "aime2025" / MANIFEST).read_text())
    assert (manifest["repo"], manifest["revision"], manifest["commit"], manifest["rows"]) == (
        "math-ai/aime25",
        PINNED,
        COMMIT,
        3,
    )
    assert manifest["endpoint"] == story.endpoint
    assert set(manifest["files"]) == {"test.jsonl", "README.md"}


def test_a_copy_of_another_revision_goes_where_it_is_told(story: Story) -> None:
    assert story.online[3] == "True"
    assert any("/revision/v2" in request for request in story.asked)
    assert json.loads((story.folder / "elsewhere" / MANIFEST).read_text())["revision"] == "v2"


def test_offline_the_librarys_cache_serves_and_nobody_is_asked(story: Story) -> None:
    assert story.offline == ["3", f"math-ai/aime25@{PINNED}: cannot be fetched: HF_HUB_OFFLINE is set"]
    assert story.asked_offline == []


def test_when_the_hub_has_gone_the_cache_serves_and_the_rest_is_said_in_one_line(story: Story) -> None:
    host = story.endpoint.removeprefix("http://")
    cached, pulled, loaded, offline = story.alone
    assert cached == "3 3"
    assert pulled.startswith(f"math-ai/aime25@{PINNED}: cannot be fetched ({host} cannot be reached: ")
    assert loaded.startswith(f"never/seen@{PINNED}: cannot load from the hub ({host} cannot be reached: ")
    assert offline == f"never/seen@{PINNED}: cannot load from the hub (offline, and not in the library's cache)"


def test_other_content_is_refused_with_both_digests_and_an_unknown_set_in_one_line(tmp_path: Path) -> None:
    changed = LINES.replace(b'"answer": "2"', b'"answer": "3"')
    found = canonical_sha256([*ROWS[:2], {**ROWS[2], "answer": "3"}], ROWS[0])
    code = """
said(lambda: load('aime2025'))
said(lambda: pull('aime2025'))
print(list(kvv.data.copy_folder('aime2025').parent.iterdir()))
use(small.model_copy(update={'repo': 'never/seen'}))
said(lambda: load('aime2025'))
said(lambda: pull('aime2025'))
"""
    with FAKE.serve("math-ai/aime25", {"test.jsonl": changed}) as hub:
        loaded, pulled, left, unknown, not_pulled = run(code, tmp_path, HF_ENDPOINT=hub.endpoint)
    for line in (loaded, pulled):
        assert f"sha256 {found}, {canonical_sha256(ROWS, ROWS[0])} expected" in line
        assert "--data" in line
    assert left == "[]"
    assert unknown.startswith(f"never/seen@{PINNED}: cannot load from the hub (")
    assert not_pulled.startswith(f"never/seen@{PINNED}: cannot be fetched from 127.0.0.1 (")


def test_a_mirrors_password_is_in_no_message() -> None:
    assert "canary" not in hub_room.unreachable("http://user:canary@127.0.0.1:9")


@pytest.mark.parametrize("mirror", ["ftp://x", "nonsense", "http://", "http://x:99999", "http://[", ""])
def test_a_mirror_that_is_no_address_is_refused(mirror: str) -> None:
    assert "address" in hub_room.unreachable(mirror)


# --- copies, without any hub -------------------------------------------------------------------------


def small_copy(folder: Path, files: Mapping[str, bytes] = FILES) -> Path:
    """A copy of three rows, with a manifest made by the room itself."""
    from kvv.data.copies import _write_manifest
    from kvv.data.spec import load_spec

    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    digest = canonical_sha256(ROWS, ROWS[0])
    _write_manifest(
        folder,
        "aime2025",
        load_spec("aime2025"),
        asked=PINNED,
        commit=COMMIT,
        mirror="http://user:canary@host/x",
        rows=3,
        digest=digest,
    )
    return folder


def test_verify_lists_everything_that_is_wrong(tmp_path: Path) -> None:
    copy = small_copy(tmp_path / "copy")
    assert "canary" not in (copy / MANIFEST).read_text()
    report = verify("aime2025", copy)
    assert not report.ok
    assert report.problems == (f"{copy}: holds 3 rows, 30 expected",)
    assert (report.rows, report.files, report.commit) == (3, 2, COMMIT)
    (copy / "test.jsonl").write_bytes(LINES.replace(b"+ 0", b"+ 1"))
    (copy / "README.md").unlink()
    problems = verify("aime2025", copy).problems
    assert f"{copy / 'README.md'}: is missing" in problems
    assert any(problem.startswith(f"{copy / 'test.jsonl'}: has sha256 ") for problem in problems)
    assert str(verify("aime2025", copy)).count("\n") == 2


def test_verify_reports_broken_manifests_and_absent_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVV_CACHE", str(tmp_path / "none"))
    assert "no copy; fetch it with `kvv data pull aime2025`" in str(verify("aime2025"))
    copy = small_copy(tmp_path / "copy")
    for text in ("{", "[]", '{"files": 3}', '{"files": {"a": 1}}'):
        (copy / MANIFEST).write_text(text)
        assert "manifest" in str(verify("aime2025", copy))
    (copy / MANIFEST).write_text('{"files": {"../../etc/passwd": {"sha256": ""}}}')
    assert "names a file outside the folder" in str(verify("aime2025", copy))


def test_verify_accepts_a_single_file_and_a_copy_of_the_pinned_rows() -> None:
    path = Path(os.environ.get("KVV_SHARED") or Path(__file__).parents[3] / "shared") / "data" / "aime25" / "test.jsonl"
    if not path.exists():
        pytest.skip("the shared data folder is absent")
    report = verify("aime2025", path)
    assert report.ok
    assert report.sha256 == report.expected_sha256
    assert "(as pinned)" in str(report)


def test_a_damaged_copy_in_the_cache_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVV_CACHE", str(tmp_path))
    small_copy(copy_folder("aime2025"))
    with pytest.raises(DataError, match="holds 3 rows, 30 expected"):
        load("aime2025")


def test_pull_does_not_replace_a_folder_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(DataError, match="is no copy made by `kvv data pull`"):
        pull("aime2025", into=tmp_path)
    assert (tmp_path / "mine.txt").exists()


def test_where_names_the_places_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVV_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "https://user:canary@mirror.example")
    copy, hub, fixture = where("aime2025")
    assert (copy.kind, copy.present, hub.kind, hub.present, fixture.kind) == ("copy", False, "hub", None, "fixture")
    assert str(hub) == f"hub      online   math-ai/aime25 at {PINNED} (https://mirror.example)"
    small_copy(copy_folder("aime2025"))
    assert where("aime2025")[0].present


def test_the_cache_follows_the_platform_and_kvv_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVV_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("KVV_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / ".cache" / "kvv"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "kvv"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "kvv" / "Cache"
