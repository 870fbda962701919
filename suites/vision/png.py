"""PNG, as the W3C's standard (third edition) describes it: every colour type that an image pipeline may trip over."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvv.core.lazy import numpy as np
from kvv.suites.vision.drawing import Drawing, DrawingError

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: mode -> colour type and bits per sample
MODES: Mapping[str, tuple[int, int]] = {
    "rgb": (2, 8),
    "rgba": (6, 8),
    "grey": (0, 8),
    "grey-alpha": (4, 8),
    "bits": (0, 1),
    "palette": (3, 8),
    "palette-alpha": (3, 8),
    "rgb16": (2, 16),
    "rgba16": (6, 16),
    "grey16": (0, 16),
}


def png(picture: Drawing, mode: str, comment: str) -> bytes:
    """The picture as a PNG file. In modes with alpha the paper is transparent, its colour kept. Raises DrawingError."""
    if mode not in MODES:
        raise DrawingError(f"no PNG mode {mode!r}; known: {', '.join(MODES)}")
    kind, depth = MODES[mode]
    width, height = picture.size
    chunks = [_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))]
    if kind == 3:
        chunks.append(_chunk(b"PLTE", bytes([*picture.paper, *picture.colour])))
        if mode == "palette-alpha":
            chunks.append(_chunk(b"tRNS", bytes([0, 255])))
    chunks.append(_chunk(b"tEXt", b"Comment\0" + comment.encode("latin-1")))
    rows = _rows(picture, kind, depth)
    # each row begins with its filter type, 0: none
    raw = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    chunks += [_chunk(b"IDAT", zlib.compress(raw, 9)), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _rows(picture: Drawing, kind: int, depth: int) -> NDArray[np.uint8]:
    """The samples of each row as bytes."""
    if kind == 3:
        return picture.ink.astype(np.uint8)
    ink, paper = (list(colour) if kind in (2, 6) else [sum(colour) // 3] for colour in (picture.colour, picture.paper))
    if depth == 1:
        return np.packbits(picture.ink if ink[0] >= 128 > paper[0] else np.logical_not(picture.ink), axis=1)
    if kind in (4, 6):
        ink, paper = [*ink, 255], [*paper, 0]
    samples = np.where(picture.ink[..., None], np.array(ink, np.uint8), np.array(paper, np.uint8))
    if depth == 16:
        # 0xNN becomes 0xNNNN: the same share of the full scale
        samples = np.repeat(samples, 2, axis=2)
    return samples.reshape(samples.shape[0], -1)
