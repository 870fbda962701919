"""Standard output and standard error of a command whose reader may go away, fill up, or not know a character."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast


class Outlet:
    """A standard stream on which nothing that is written ever raises; in all else it is the stream itself.

    What cannot be encoded is written as a backslash escape. The first OSError (closed pipe, full disk, terminal that is
    gone) silences the stream: its descriptor is pointed at the null device, so that what is buffered, other writers and
    the interpreter's own last flush fail no more. ``failed`` is called once then, with the error.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None
        # only the mode that raises is replaced: whoever chose another one in PYTHONIOENCODING keeps it
        if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if self.failure is None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._silence(error)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self.failure is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._silence(error)

    def _silence(self, error: OSError) -> None:
        self.failure = error
        with suppress(OSError, ValueError):  # a stream without a descriptor has nothing that could fail again
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


@contextmanager
def outlets() -> Iterator[None]:
    """``sys.stdout`` and ``sys.stderr`` as outlets. At the end both are flushed, and a standard output that failed is
    named on standard error, unless its reader went away (``| head``), which is no trouble."""
    _occupy_standard_descriptors()
    before = sys.stdout, sys.stderr
    # started with a stream closed: what is said goes nowhere, the exit code and the reports still tell
    said, told = (Outlet(stream or open(os.devnull, "w", encoding="utf-8")) for stream in before)  # noqa: SIM115 as long as the process
    sys.stdout, sys.stderr = cast("TextIO", said), cast("TextIO", told)
    try:
        yield
    finally:
        said.flush()
        if said.failure is not None and not isinstance(said.failure, BrokenPipeError):
            reason = said.failure.strerror or said.failure
            told.write(
                f"kvv: standard output cannot be written ({reason}); the exit code and the report files are not"
                " affected\n"
            )
        told.flush()
        sys.stdout, sys.stderr = before


def _occupy_standard_descriptors() -> None:
    """A file opened while 0, 1 or 2 is closed would take its number, and receive what a library or a child prints
    there.
    """
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(spare, True)
    os.close(spare)
