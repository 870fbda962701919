"""Reading a small file that anybody may have put there: a link, a pipe, a device or an endless file is refused, not
followed, waited for or read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

#: bytes of a configuration; a written run.toml has a few hundred
LIMIT = 1_000_000


def read_plain(path: Path, *, limit: int = LIMIT, follow: bool = False) -> str:
    """The file's text, UTF-8. ``follow``: it may be a symbolic link to a plain file, for files that are the user's own.

    Raises OSError for what is no plain file or has more than ``limit`` bytes, UnicodeDecodeError.
    """
    # asked before it is opened: opening alone can make a device act
    if not stat.S_ISREG((path.stat() if follow else path.lstat()).st_mode):
        raise OSError("is no plain file but a link, a pipe, a device or a folder")
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
    with open(os.open(path, flags), "rb") as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):  # put in its place in this moment
            raise OSError("is no plain file")
        data = source.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"has more than {limit:,} bytes")
    return data.decode("utf-8")
