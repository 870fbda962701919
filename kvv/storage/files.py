"""Files written where somebody else may have put something first: a link, a pipe, a device, another name of a file
elsewhere.

A run's folder is its user's alone unless ``--shared`` opened it, and what is written into a private folder is private
too, so that a copy of it stays so.

A file is written whole under a new name beside its place and then renamed over it. What stood there is replaced, never
opened: a link's target and a hard link's other names keep their content, a pipe blocks nobody, and a full disk leaves
the earlier file as it was.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

#: Windows knows no links that are followed here, and would translate line ends without its own flag
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def is_private(folder: Path) -> bool:
    """Whether nobody but its owner may enter the folder. Never on Windows, whose rights are not told by a mode."""
    return os.name != "nt" and not stat.S_IMODE(folder.stat().st_mode) & 0o077


def make_folder(path: Path, *, shared: bool = False) -> None:
    """A new folder, private unless ``shared``; those above it, where they are missing, as the umask wants. Raises
    OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o777 if shared else 0o700)


def new_beside(path: Path, mode: int | None = None) -> tuple[Path, BinaryIO]:
    """A new file in the folder of ``path``, open for writing, and its own path. Raises OSError."""
    unnamed = path.with_name(f".{secrets.token_hex(4)}.part")
    mode = mode or (0o600 if is_private(path.parent) else 0o666)
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
