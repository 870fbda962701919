"""Files written where somebody else may have put something first: a link, a pipe, a device, another name of a file
elsewhere.

A file is written whole under a new name beside its place and then renamed over it. What stood there is replaced, never
opened: a link's target and a hard link's other names keep their content, a pipe blocks nobody, and a full disk leaves
the earlier file as it was.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

#: Windows knows no links that are followed here, and would translate line ends without its own flag
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def new_beside(path: Path, mode: int = 0o666) -> tuple[Path, BinaryIO]:
    """A new file in the folder of ``path``, open for writing, and its own path. Raises OSError."""
    unnamed = path.with_name(f".{secrets.token_hex(4)}.part")
    return unnamed, os.fdopen(os.open(unnamed, _FLAGS, mode), "wb")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that stands at ``path`` once the block has ended, and not at all where it raised. Raises OSError."""
    unnamed, out = new_beside(path)
    try:
        with out:
            yield out
        os.replace(unnamed, path)
    except BaseException:
        with suppress(OSError):
            unnamed.unlink()
        raise


def replace_file(path: Path, content: str | bytes, errors: str = "strict") -> None:
    """``replacing`` with this content; text is UTF-8 with the line ends that it has. Raises OSError."""
    with replacing(path) as out:
        out.write(content.encode("utf-8", errors) if isinstance(content, str) else content)
