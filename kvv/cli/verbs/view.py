"""`kvv view`: runs in a browser, on this machine; `--export` writes them as a static site."""

from __future__ import annotations

import argparse
import secrets
import socket
from pathlib import Path

from kvv.planning.config import ConfigError
from kvv.rendering.escape import plain
from kvv.storage.run_folder import STORE, find_run, runs_under

HOST = "127.0.0.1"


def view(arguments: argparse.Namespace) -> int:
    root = _root(arguments.folder, arguments.out or "reports")
    from kvv.cli.verbs.viewer.library import Library

    library = Library(root)
    if arguments.export:
        from kvv.cli.verbs.viewer.export import export

        written = export(library, Path(arguments.export), public=bool(arguments.public))
        print(plain(f"wrote {written:,} pages to {arguments.export}; index.html is the board"))
        return 0
    if not 0 <= arguments.port <= 65_535:
        raise ConfigError(f"--port: wants 0 to 65535, got {arguments.port}")
    _serve(library, arguments.port, root)
    return 0


def _root(named: str | None, out: str) -> Path:
    """A folder of runs, or one run: by path, name or `last`."""
    if named is None:
        root = Path(out)
        if not root.is_dir():
            raise ConfigError(f"DIR: {root} is no folder; name one that holds runs")
        return root
    path = Path(named)
    if path.is_dir() and not (path / STORE).is_file():
        if not runs_under(path):
            raise ConfigError(f"DIR: {named} holds no run")
        return path
    return find_run(named, out)


def _serve(library: object, port: int, root: Path) -> None:
    import uvicorn

    from kvv.cli.verbs.viewer.app import make_app
    from kvv.cli.verbs.viewer.library import Library

    assert isinstance(library, Library)  # imported only where it is needed
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((HOST, port))
    except OSError as error:
        sock.close()
        raise ConfigError(f"--port: cannot listen on {HOST}:{port}: {error.strerror or error}") from error
    bound = sock.getsockname()[1]
    token = secrets.token_urlsafe(24)
    print(f"http://{HOST}:{bound}/?token={token}", flush=True)
    print(plain(f"shows {root}; reads only, answers this machine only; Ctrl-C ends it"), flush=True)
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(library, token, bound),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=1,
        )
    )
    server.run(sockets=[sock])
