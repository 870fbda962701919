"""Runs of the golden corpus behind `kvv view`, one of them with hostile text in it."""

from __future__ import annotations

import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn

from kvv.cli.verbs.viewer.app import make_app
from kvv.cli.verbs.viewer.library import Library
from kvv.core import Outcome
from kvv.storage.store import Store

CORPUS = Path(__file__).resolve().parents[1] / "golden" / "corpus"
TOKEN = "token-of-the-test"
CLEAN, FAULTY, UNFINISHED = (
    "20261201T003545Z-local-18431-kimi-k3-7e5afe",
    "20261201T004018Z-local-18431-kimi-k3-b3ba55",
    "20261201T004025Z-local-18431-kimi-k3-96793a",
)
#: whatever runs of it sets the page's title or asks for something
HOSTILE = "</pre><script>document.title='hit'</script><img src=//evil.invalid/x onerror=\"document.title='hit'\">\u202e"


def lay_out(folder: Path) -> Path:
    for name in ("clean", "fault-A05", "unfinished"):
        with tarfile.open(CORPUS / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    with Store.open(folder / FAULTY / "store.sqlite") as store:
        _, _, verdict = next(one for one in store.verdicts() if one[2].outcome is Outcome.FAIL)
        store.put_verdict(replace(verdict, detail=HOSTILE, facts={HOSTILE: HOSTILE}))
    return folder


def put_failure(run: Path) -> str:
    """One more verdict in a run that goes on; its case."""
    with Store.open(run / "store.sqlite") as store:
        _, _, verdict = next(one for one in store.verdicts() if one[2].outcome is Outcome.PASS)
        store.put_verdict(replace(verdict, outcome=Outcome.FAIL, reason="just-now", detail="it came while you looked"))
    return verdict.case


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server over the folder, without its token."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    config = uvicorn.Config(
        make_app(Library(folder), TOKEN, port), lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
