"""Pictures: what is drawn is what is shown, in every format."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from kvv.suites.vision.drawing import COLOURS, DrawingError, draw_picture
from kvv.suites.vision.pictures import file_of, picture_part
from kvv.suites.vision.png import MODES

NUMBER = {"number": "40817", "size": [331, 157], "ink": "blue", "paper": "yellow"}


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of a PNG, each with a right check sum."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, found = 8, []
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + body),)
        found.append((kind, body))
        at += 12 + length
    return found


# --- what is drawn -------------------------------------------------------------------------------------------


def test_digits_differ_and_fill_the_picture() -> None:
    pictures = [draw_picture({"number": digit}).ink for digit in "0123456789"]
    assert len({picture.tobytes() for picture in pictures}) == 10
    assert all(picture.any(axis=1).sum() > 100 for picture in pictures)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_so_many_circles_are_drawn_apart(count: int) -> None:
    middle = draw_picture({"circles": count, "size": [1200, 300]}).ink[150]
    assert int((np.diff(middle.astype(np.int8)) == 1).sum()) == count


def test_a_triangle_grows_downwards_a_square_does_not() -> None:
    rows = draw_picture({"shape": "triangle", "size": [300, 300]}).ink.sum(axis=1)
    filled = rows[rows > 0]
    assert (np.diff(filled) >= 0).all()
    assert filled[-1] > 5 * max(filled[0], 1)
    assert len(set(draw_picture({"shape": "square", "size": [300, 300]}).ink.sum(axis=1).tolist())) == 2


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"number": "12a"}, "only digits"),
        ({"number": "123456789", "size": [20, 20]}, "does not fit"),
        ({"colour": "mauve"}, "no colour 'mauve'"),
        ({"shape": "star"}, "no shape 'star'"),
        ({}, "a picture shows"),
    ],
)
def test_what_cannot_be_drawn_is_named(argument: dict[str, Any], message: str) -> None:
    with pytest.raises(DrawingError, match=message):
        draw_picture(argument)


@pytest.mark.parametrize(("kind", "mode"), [("bmp", "rgb"), ("png", "cmyk")])
def test_an_unknown_format_is_named(kind: str, mode: str) -> None:
    with pytest.raises(DrawingError, match="known:"):
        file_of(draw_picture(NUMBER), kind, mode)


# --- files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_png_is_whole_and_holds_its_pixels(mode: str) -> None:
    picture = draw_picture({**NUMBER, "ink": "black", "paper": "white"})
    found = chunks(file_of(picture, "png", mode))
    assert [kind for kind, _ in found if kind != b"tRNS"] == [
        b"IHDR",
        *([b"PLTE"] if "palette" in mode else []),
        b"tEXt",
        b"IDAT",
        b"IEND",
    ]
    width, height, depth, kind = struct.unpack(">IIBB", found[0][1][:10])
    assert (width, height, kind, depth) == (331, 157, *MODES[mode])
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    raw = zlib.decompress(dict(found)[b"IDAT"])
    row = -(-width * samples * depth // 8)
    assert len(raw) == height * (row + 1)
    rows = np.frombuffer(raw, np.uint8).reshape(height, row + 1)
    assert not rows[:, 0].any(), "every filter is none"
    first = rows[:, 1] >> 7 if mode == "bits" else rows[:, 1 : 1 + 1]
    assert first.size


@pytest.mark.parametrize("kind", ["png", "gif", "jpeg", "webp"])
def test_a_file_says_what_it_shows_and_how_large_it_is_to_our_endpoint(kind: str) -> None:
    from kvv.mockserver.validation.images import image_from_url

    url = picture_part({**NUMBER, "format": kind}, {})["image_url"]["url"]
    assert b"kvv-shows: 40817\n" in base64.b64decode(url.partition(",")[2])
    image = image_from_url(url)
    assert (image.media, image.width, image.height) == (f"image/{kind}", 331, 157)


@pytest.mark.parametrize(
    ("kind", "mode"), [*(("png", mode) for mode in sorted(MODES)), ("gif", "rgb"), ("jpeg", "rgb"), ("webp", "rgb")]
)
@pytest.mark.parametrize("size", [[331, 157], [64, 64], [640, 200]])
def test_an_independent_decoder_sees_the_same_pixels(kind: str, mode: str, size: list[int]) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    # grey modes and the library's way with sixteen bits want black on white
    picture = draw_picture({"number": "27", "size": size, "ink": "black", "paper": "white"})
    with image.open(io.BytesIO(file_of(picture, kind, mode))) as opened:
        opened.load()
        assert opened.format == kind.upper()
        pixels = np.asarray(opened.convert("RGBA"))
    off = np.abs(pixels[..., :3].astype(int) - picture.rgb.astype(int))
    assert off.max() <= (40 if kind == "jpeg" else 0)
    if mode in ("rgba", "rgba16", "grey-alpha", "palette-alpha"):
        assert (pixels[..., 3] == np.where(picture.ink, 255, 0)).all()


@pytest.mark.parametrize("kind", ["png", "gif", "jpeg", "webp"])
@pytest.mark.parametrize("colour", ["red", "blue", "yellow"])
@pytest.mark.parametrize("size", [[1, 1], [13, 11], [40, 3]])
def test_a_plain_colour_keeps_its_colour_in_any_size(kind: str, colour: str, size: list[int]) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    with image.open(io.BytesIO(file_of(draw_picture({"colour": colour, "size": size}), kind))) as opened:
        pixels = np.asarray(opened.convert("RGB")).astype(int)
    assert pixels.shape[:2] == (size[1], size[0])
    assert np.abs(pixels - np.array(COLOURS[colour])).max() <= (6 if kind == "jpeg" else 0)


def test_a_picture_part_keeps_its_detail_out_of_the_file() -> None:
    plain = picture_part(NUMBER, {})
    low = picture_part({**NUMBER, "detail": "low"}, {})
    assert low == {"type": "image_url", "image_url": {**plain["image_url"], "detail": "low"}}


# --- EXIF ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_a_viewer_that_heeds_exif_sees_the_picture_upright_and_one_that_does_not_sees_it_turned(
    orientation: int,
) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed")
    from PIL import Image, ImageOps

    argument = {"number": "6184", "size": [160, 80]}
    data = file_of(draw_picture(argument), "jpeg", orientation=orientation)
    image = Image.open(io.BytesIO(data))
    assert image.getexif()[0x0112] == orientation
    upright = np.asarray(Image.open(io.BytesIO(file_of(draw_picture(argument), "jpeg"))).convert("L")) < 128
    seen = np.asarray(ImageOps.exif_transpose(image).convert("L")) < 128
    raw = np.asarray(image.convert("L")) < 128
    assert np.array_equal(seen, upright)
    assert not np.array_equal(raw, upright)
    assert b"kvv-shows: 6184\n" in data


@pytest.mark.parametrize(("kind", "orientation"), [("png", 3), ("jpeg", 2)])
def test_an_orientation_that_we_cannot_write_is_named(kind: str, orientation: int) -> None:
    with pytest.raises(DrawingError, match="no orientation"):
        file_of(draw_picture(NUMBER), kind, orientation=orientation)
