"""Run as a script, with the standard library only: removes what a killed run has left behind.

    python watchdog.py FOLDER [SOCKET LABEL]

Waits for the end of standard input, which comes when the parent ends, however it ends. Then removes the folder, and, on
the container engine behind the Unix socket, every container with the label (``name=value``).
"""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
import urllib.parse


class _Engine(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(path: str, method: str, target: str) -> bytes:
    engine = _Engine(path)
    try:
        engine.request(method, target)
        return engine.getresponse().read()
    finally:
        engine.close()


def remove_containers(path: str, label: str) -> int:
    """How many containers with the label were removed. Raises OSError or HTTPException where the engine does not
    answer.
    """
    filters = urllib.parse.quote(json.dumps({"label": [label]}))
    found = json.loads(_ask(path, "GET", f"/v1.40/containers/json?all=true&filters={filters}"))
    for container in found:
        _ask(path, "DELETE", f"/v1.40/containers/{container['Id']}?force=true&v=true")
    return len(found)


def main(argv: list[str]) -> None:
    folder, *engine = argv
    while os.read(0, 4096):
        pass
    for _ in range(3):
        if engine:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
                remove_containers(*engine)
        for command in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            if os.path.exists(folder):
                subprocess.run([*command, "--", folder], stderr=subprocess.DEVNULL, check=False)  # noqa: S603
        if not engine and not os.path.exists(folder):
            return
        time.sleep(1)  # a sandbox that is ending may still write


if __name__ == "__main__":
    main(sys.argv[1:])
