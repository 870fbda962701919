"""What our pictures show: numbers, plain colours, shapes and counts, drawn pixel by pixel so that the right answer is
known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvv.core.lazy import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]


COLOURS: Mapping[str, tuple[int, int, int]] = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "red": (214, 24, 24),
    "green": (20, 150, 40),
    "blue": (24, 60, 220),
    "yellow": (250, 220, 20),
    "orange": (250, 130, 10),
    "purple": (130, 30, 150),
    "grey": (128, 128, 128),
}
#: digits of five by seven dots, one row a group of five
_DIGITS: Mapping[str, str] = {
    "0": "01110 10001 10001 10001 10001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00010 00100 01000 11111",
    "3": "11111 00010 00100 00010 00001 10001 01110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
}


class DrawingError(ValueError):
    """A picture that cannot be drawn; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """``ink`` tells which pixels are drawn (height by width); the colours are RGB. ``shows`` is the right answer."""

    ink: NDArray[np.bool_]
    colour: tuple[int, int, int]
    paper: tuple[int, int, int]
    shows: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return int(self.ink.shape[1]), int(self.ink.shape[0])

    def turned(self, quarters: int) -> Drawing:
        """Turned anticlockwise by so many quarters."""
        return replace(self, ink=np.rot90(self.ink, quarters))

    @property
    def rgb(self) -> Pixels:
        return np.where(self.ink[..., None], np.array(self.colour, np.uint8), np.array(self.paper, np.uint8)).astype(
            np.uint8
        )


def draw_picture(argument: Mapping[str, Any]) -> Drawing:
    """``{ number | colour | shape | circles, size = [w, h], ink, paper }``. Raises DrawingError."""
    width, height = (int(side) for side in argument.get("size", (320, 160)))
    ink = _colour(str(argument.get("ink", "black")))
    paper = _colour(str(argument.get("paper", "white")))
    match argument:
        case {"number": value}:
            return Drawing(ink=_number(str(value), width, height), colour=ink, paper=paper, shows=str(value))
        case {"colour": value}:
            return Drawing(
                ink=np.ones((height, width), np.bool_), colour=_colour(str(value)), paper=paper, shows=str(value)
            )
        case {"shape": value}:
            return Drawing(ink=_shape(str(value), width, height), colour=ink, paper=paper, shows=str(value))
        case {"circles": value}:
            return Drawing(ink=_circles(int(value), width, height), colour=ink, paper=paper, shows=str(value))
    raise DrawingError("a picture shows a number, a colour, a shape or circles")


def _colour(name: str) -> tuple[int, int, int]:
    if name not in COLOURS:
        raise DrawingError(f"no colour {name!r}; known: {', '.join(COLOURS)}")
    return COLOURS[name]


def _number(text: str, width: int, height: int) -> NDArray[np.bool_]:
    """The digits as large as they fit, in the middle."""
    if not text or not set(text) <= _DIGITS.keys():
        raise DrawingError(f"only digits are drawn, not {text!r:.40}")
    columns = 6 * len(text) - 1
    dots = np.zeros((7, columns), np.bool_)
    for at, digit in enumerate(text):
        rows = [[sign == "1" for sign in row] for row in _DIGITS[digit].split()]
        dots[:, 6 * at : 6 * at + 5] = rows
    scale = min(int(width * 0.85) // columns, int(height * 0.7) // 7)
    if scale < 1:
        raise DrawingError(f"{text} does not fit into {width} by {height} pixels")
    large = np.kron(dots, np.ones((scale, scale), np.bool_))
    canvas = np.zeros((height, width), np.bool_)
    top, left = (height - large.shape[0]) // 2, (width - large.shape[1]) // 2
    canvas[top : top + large.shape[0], left : left + large.shape[1]] = large
    return canvas


def _grid(width: int, height: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows, columns = np.indices((height, width), dtype=np.float64)
    return rows + 0.5, columns + 0.5


def _shape(name: str, width: int, height: int) -> NDArray[np.bool_]:
    rows, columns = _grid(width, height)
    radius = 0.35 * min(width, height)
    down, right = rows - height / 2, columns - width / 2
    match name:
        case "circle":
            return np.asarray(down**2 + right**2 <= radius**2)
        case "square":
            return np.asarray((abs(down) <= radius) & (abs(right) <= radius))
        case "triangle":
            return np.asarray((abs(down) <= radius) & (abs(right) <= (down + radius) / 2))
    raise DrawingError(f"no shape {name!r}; known: circle, square, triangle")


def _circles(count: int, width: int, height: int) -> NDArray[np.bool_]:
    """So many circles in a row."""
    rows, columns = _grid(width, height)
    step = width / max(count, 1)
    radius = 0.35 * min(step, height)
    canvas = np.zeros((height, width), np.bool_)
    for at in range(count):
        canvas |= (rows - height / 2) ** 2 + (columns - (at + 0.5) * step) ** 2 <= radius**2
    return canvas
