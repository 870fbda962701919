"""Which backend is taken, and what is said where there is none."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from kvv.sandbox import SandboxError, Workspace, choose, find_backend
from kvv.sandbox.engine import ContainerEngine, EngineError, socket_path
from kvv.sandbox.output import Kept


def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kvv.sandbox.bubblewrap.packaged", str)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")


def test_without_a_backend_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nothing_installed(monkeypatch, tmp_path)
    with pytest.raises(SandboxError) as caught:
        choose(None)
    assert "apt-get install bubblewrap" in str(caught.value)
    assert "pip install 'kvv[sandbox]'" in str(caught.value)
    assert "does not answer" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_unsafe_backend_is_taken_by_name_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert choose("none").name == "none"
    nothing_installed(monkeypatch, tmp_path)
    with pytest.raises(SandboxError, match="none: bash is not installed"):
        choose("none")


def test_an_unknown_backend_is_named_with_the_known_ones() -> None:
    with pytest.raises(SandboxError, match="no sandbox 'vm'; known: bwrap, docker, none"):
        find_backend("vm")


def test_an_instance_that_is_an_image_needs_a_container_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with pytest.raises(SandboxError, match=r"container images|not installed"):
        choose(None, Workspace(image="swebench/sweb.eval.x86_64.pallets_1776_flask-5014:latest"))


@pytest.mark.parametrize("fields", [{}, {"bundle": "no base64!"}, {"bundle": "aGk=", "unknown": "x"}])
def test_a_case_without_a_workspace_is_the_sandboxs_failure(fields: dict[str, str]) -> None:
    with pytest.raises(SandboxError):
        Workspace.of(fields)


def test_docker_host_names_the_socket_and_a_remote_one_is_not_taken(tmp_path: Path) -> None:
    assert socket_path({"DOCKER_HOST": "unix:///somewhere.sock"}) == Path("/somewhere.sock")
    assert socket_path({"DOCKER_HOST": "tcp://10.0.0.1:2375"}) is None


def test_an_engine_that_breaks_off_is_an_error_of_one_line(tmp_path: Path) -> None:
    place = Path(os.path.relpath(tmp_path / "s"))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen(1)

        def hang_up() -> None:
            connection, _ = server.accept()
            connection.recv(100)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(EngineError, match="does not answer"):
            ContainerEngine(place).call("GET", "/version")
        thread.join()


@pytest.mark.parametrize(
    ("limit", "chunks"),
    [(10, [b"0123456789"]), (7, [b"ab", b"cdefghij", b"k"]), (0, [b"xyz"]), (1, [b"xyz"]), (4, [b"a"] * 1000)],
)
def test_what_is_kept_of_an_output_is_its_beginning_and_its_end(limit: int, chunks: list[bytes]) -> None:
    kept = Kept(limit)
    for chunk in chunks:
        kept.feed(chunk)
    whole = b"".join(chunks).decode()
    head = limit - limit // 2
    tail = limit // 2
    text = kept.text()
    assert len(text) + kept.elided == len(whole)
    assert text == (whole if len(whole) <= limit else whole[:head] + (whole[-tail:] if tail else ""))


def test_a_character_split_between_chunks_is_one_character() -> None:
    kept = Kept(10)
    for byte in "aé".encode():
        kept.feed(bytes([byte]))
    kept.feed(b"\xc3")
    assert kept.text() == "aé\N{REPLACEMENT CHARACTER}"
