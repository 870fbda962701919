"""GIF, JPEG and WebP, written in the simplest way that their specifications allow."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvv.core.lazy import numpy as np
from kvv.suites.vision.drawing import Drawing

if TYPE_CHECKING:
    from numpy.typing import NDArray


# --- GIF89a ----------------------------------------------------------------------------------------

#: with seven bits a pixel, codes have eight until 126 more entries are in the table: cleared before that, a code is a
#: byte
_GIF_BITS, _GIF_CLEAR, _GIF_END, _GIF_RUN = 7, 0x80, 0x81, 120


def gif(picture: Drawing, comment: str) -> bytes:
    width, height = picture.size
    palette = bytes([*picture.paper, *picture.colour]) + bytes(3 * 126)
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0xF6, 0, 0) + palette
    said = comment.encode("ascii")
    note = b"\x21\xfe" + bytes([len(said)]) + said + b"\x00"
    pixels = picture.ink.astype(np.uint8).tobytes()
    coded = b"".join(
        bytes([_GIF_CLEAR]) + pixels[at : at + _GIF_RUN] for at in range(0, len(pixels), _GIF_RUN)
    ) + bytes([_GIF_END])
    blocks = b"".join(bytes([len(part)]) + part for part in (coded[at : at + 255] for at in range(0, len(coded), 255)))
    return (
        head
        + note
        + b"\x2c"
        + struct.pack("<HHHHB", 0, 0, width, height, 0)
        + bytes([_GIF_BITS])
        + blocks
        + b"\x00\x3b"
    )


# --- JPEG, baseline ----------------------------------------------------------------------------------

_QUANTUM = 6
_ORDER = sorted(
    ((row, column) for row in range(8) for column in range(8)),
    key=lambda at: (sum(at), at[0] if sum(at) % 2 else at[1]),
)
_ZIGZAG = [row * 8 + column for row, column in _ORDER]
_DC_SYMBOLS = list(range(12))
#: a run of zeros and the size of what follows; 0x00 ends a block, 0xF0 is sixteen zeros
_AC_SYMBOLS = [0x00, 0xF0, *(run << 4 | size for run in range(16) for size in range(1, 11))]
_DC_BITS, _AC_BITS = 4, 8


def jpeg(picture: Drawing, comment: str, orientation: int = 0) -> bytes:
    """Three components without subsampling. Every Huffman code of a table is as long as the others: a table need not be
    good. ``orientation`` other than 0 is said in EXIF (tag 0x0112).
    """
    width, height = picture.size
    said = comment.encode("ascii")
    parts = [
        b"\xff\xd8",
        _segment(0xE0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"),
        *([_segment(0xE1, _exif(orientation))] if orientation else []),
        _segment(0xFE, said),
        _segment(0xDB, b"\0" + bytes([_QUANTUM] * 64)),
        _segment(0xC0, struct.pack(">BHHB", 8, height, width, 3) + bytes([1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0])),
        _segment(0xC4, b"\x00" + _lengths(_DC_BITS, len(_DC_SYMBOLS)) + bytes(_DC_SYMBOLS)),
        _segment(0xC4, b"\x10" + _lengths(_AC_BITS, len(_AC_SYMBOLS)) + bytes(_AC_SYMBOLS)),
        _segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 63, 0])),
        _scan(picture.rgb),
        b"\xff\xd9",
    ]
    return b"".join(parts)


def _exif(orientation: int) -> bytes:
    """A big-endian TIFF header and one directory of one entry, a short."""
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
    return b"Exif\0\0" + b"MM\0*" + struct.pack(">IH", 8, 1) + entry + struct.pack(">I", 0)


def _segment(marker: int, data: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def _lengths(bits: int, count: int) -> bytes:
    return bytes(count if at == bits else 0 for at in range(1, 17))


def _scan(rgb: NDArray[np.uint8]) -> bytes:
    """The coefficients of all blocks, interleaved by component; a byte 0xFF is followed by 0x00."""
    channels = [_coefficients(channel) for channel in _ycbcr(rgb)]
    before = [0, 0, 0]
    bits: list[str] = []
    for block in zip(*channels, strict=True):
        for component, values in enumerate(block):
            bits.extend(_coded(values, before[component]))
            before[component] = values[0]
    text = "".join(bits)
    text += "1" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\x00")


def _ycbcr(rgb: NDArray[np.uint8]) -> list[NDArray[np.float64]]:
    red, green, blue = (rgb[..., at].astype(np.float64) for at in range(3))
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return [luma - 128, (blue - luma) / 1.772, (red - luma) / 1.402]


def _coefficients(channel: NDArray[np.float64]) -> list[list[int]]:
    """Quantised DCT of every block of eight by eight, in zigzag order; edges are repeated outwards."""
    padded = np.pad(channel, [(0, -channel.shape[0] % 8), (0, -channel.shape[1] % 8)], mode="edge")
    rows, columns = padded.shape[0] // 8, padded.shape[1] // 8
    blocks = padded.reshape(rows, 8, columns, 8).swapaxes(1, 2).reshape(-1, 8, 8)
    at = np.arange(8)
    basis = 0.5 * np.cos((2 * at[None, :] + 1) * at[:, None] * np.pi / 16)
    basis[0] /= np.sqrt(2)
    transformed = basis @ blocks @ basis.T
    rounded = np.rint(transformed / _QUANTUM).astype(np.int64).reshape(-1, 64)[:, _ZIGZAG]
    found: list[list[int]] = rounded.tolist()
    return found


def _coded(values: list[int], before: int) -> Iterator[str]:
    """The bits of one block: the difference to the block before, then runs of zeros with what ends them."""
    yield from _number(values[0] - before, _DC_SYMBOLS, _DC_BITS, 0)
    zeros = 0
    last = max((at for at in range(1, 64) if values[at]), default=0)
    for value in values[1 : last + 1]:
        if value == 0:
            zeros += 1
            continue
        while zeros > 15:
            yield format(_AC_SYMBOLS.index(0xF0), f"0{_AC_BITS}b")
            zeros -= 16
        yield from _number(value, _AC_SYMBOLS, _AC_BITS, zeros)
        zeros = 0
    if last < 63:
        yield format(_AC_SYMBOLS.index(0x00), f"0{_AC_BITS}b")


def _number(value: int, symbols: list[int], bits: int, zeros: int) -> Iterator[str]:
    size = abs(value).bit_length()
    yield format(symbols.index(zeros << 4 | size), f"0{bits}b")
    if size:
        yield format(value if value > 0 else value + (1 << size) - 1, f"0{size}b")


# --- WebP, lossless ----------------------------------------------------------------------------------


def webp(picture: Drawing, comment: str) -> bytes:
    """An extended file: header, lossless image, and the comment as its XMP chunk."""
    width, height = picture.size
    canvas = struct.pack("<I", 0x04) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = (
        b"WEBP" + _riff(b"VP8X", canvas) + _riff(b"VP8L", _lossless(picture)) + _riff(b"XMP ", comment.encode("ascii"))
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _riff(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def _lossless(picture: Drawing) -> bytes:
    """No transform, no colour cache, one group of prefix codes; a channel of two values costs one bit a pixel, of one
    none.
    """
    width, height = picture.size
    bits = [*_bits(width - 1, 14), *_bits(height - 1, 14), 0, *_bits(0, 3), 0, 0, 0]
    rgb = picture.rgb.reshape(-1, 3)
    columns = []
    # the order of the codes and of the samples: green, red, blue, alpha, then distances
    for channel in (1, 0, 2):
        values = np.unique(rgb[:, channel])
        bits += _code([int(value) for value in values])
        if len(values) == 2:
            columns.append(rgb[:, channel] == values[1])
    bits += [*_code([255]), *_code([0])]
    samples = np.stack(columns, axis=1).reshape(-1) if columns else np.zeros(0, np.bool_)
    stream = np.concatenate([np.array(bits, np.bool_), samples])
    return b"\x2f" + np.packbits(stream, bitorder="little").tobytes()


def _bits(value: int, count: int) -> list[int]:
    return [value >> at & 1 for at in range(count)]


def _code(values: list[int]) -> list[int]:
    """A simple prefix code of one or two symbols of eight bits."""
    rest = _bits(values[1], 8) if len(values) == 2 else []
    return [1, len(values) - 1, 1, *_bits(values[0], 8), *rest]
