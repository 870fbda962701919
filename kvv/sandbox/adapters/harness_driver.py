"""Run as a script: SWE-bench's own harness, whose containers get labels so that whoever cleans up finds them.

    python harness_driver.py DESCRIPTOR LABELS ARGUMENT...

``LABELS`` is a JSON object.

Ends, with all it has started, when the pipe behind the descriptor ends, which comes when its parent ends, however it
ends.
"""

import json
import os
import runpy
import signal
import sys
import threading
from importlib import import_module


def _end_with(parent: int) -> None:
    while os.read(parent, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


def _label(labels: dict[str, str]) -> None:
    containers = import_module("docker.models.containers").ContainerCollection
    create = containers.create

    def labelled(self: object, *arguments: object, **fields: object) -> object:
        given = fields.get("labels")
        fields["labels"] = {**(given if isinstance(given, dict) else {}), **labels}
        return create(self, *arguments, **fields)

    containers.create = labelled


def main(argv: list[str]) -> None:
    parent, labels, *arguments = argv
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    _label(json.loads(labels))
    sys.argv = ["run_evaluation", *arguments]
    runpy.run_module("swebench.harness.run_evaluation", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
