"""A tokeniser's merges in tiktoken's form: one base64 token and its rank a line."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from kvv.data.local import LFS_POINTER
from kvv.data.spec import DataError, one_line

#: bytes of a merges file; K2's has 2.8 MB
_LIMIT = 64 << 20


def read_merges(path: Path) -> dict[bytes, int]:
    """Token bytes -> rank. DataError naming file and line for anything else."""
    try:
        if path.stat().st_size > _LIMIT:
            raise DataError(f"{path}: larger than {_LIMIT} bytes: no merges file")
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or one_line(error)}") from error
    if raw.startswith(LFS_POINTER):
        raise DataError(f"{path}: is a Git LFS pointer, not the file; fetch it with `git lfs pull`")
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(raw.splitlines(), 1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise DataError(f"{path}: line {number}: not a base64 token and a rank") from error
    if len(set(ranks.values())) != len(ranks) or not all(bytes([byte]) in ranks for byte in range(256)):
        raise DataError(f"{path}: no whole set of merges: ranks repeat, or single bytes are missing")
    return ranks


def read_tokenizer_json(path: Path) -> str:
    """The text of a Hugging Face ``tokenizer.json``, by the file or the folder that holds it; DataError where it cannot
    be read.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        if file.stat().st_size > _LIMIT:
            raise DataError(f"{file}: larger than {_LIMIT} bytes: no tokenizer.json")
        raw = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or one_line(error)}") from error
    if raw.startswith(LFS_POINTER):
        raise DataError(f"{file}: is a Git LFS pointer, not the file; fetch it with `git lfs pull`")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 (byte {raw[error.start]:#04x} at position {error.start})") from error
