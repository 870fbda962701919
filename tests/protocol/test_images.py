"""Pictures as bytes: every mode and format can be sent, KVV's re-encoding is Pillow's own, hostile bytes are one
clause.
"""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from kvv.core import PictureForm
from kvv.protocol.images import MAX_PIXELS, Encoded, ImageError, data_url, encode_picture, inspect

AS_IS, KVV = PictureForm.AS_IS, PictureForm.KVV_JPEG


def drawn(
    mode: str = "RGB", form: str = "PNG", *, colour: Any = None, size: tuple[int, int] = (20, 10), **how: Any
) -> bytes:
    buffer = io.BytesIO()
    deep = mode in ("I", "F", "I;16")
    picture = Image.new(mode, size, colour) if deep else Image.new("RGB", size, colour or (200, 100, 50)).convert(mode)
    picture.save(buffer, form, **how)
    return buffer.getvalue()


def opened(data: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(data))
    picture.load()
    return picture


def pixel(data: bytes) -> Any:
    return opened(data).getpixel((5, 5))


# --- as they are -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "media"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp"), ("GIF", "image/gif")]
)
def test_formats_that_the_api_takes_go_byte_for_byte_under_their_own_name(form: str, media: str) -> None:
    data = drawn(form=form)
    assert encode_picture(data, AS_IS).data == data
    assert encode_picture(data, AS_IS).media == inspect(data).media == media


@pytest.mark.parametrize("form", ["BMP", "TIFF", "PPM"])
def test_other_formats_become_png_without_loss(form: str) -> None:
    sent = encode_picture(drawn(form=form), AS_IS)
    assert (sent.media, opened(sent.data).format, pixel(sent.data)) == ("image/png", "PNG", (200, 100, 50))
    assert inspect(drawn(form=form)).media == "image/png"


def test_the_data_url_is_json_and_decodes_to_the_bytes() -> None:
    sent = encode_picture(drawn(), AS_IS)
    url = json.loads(data_url(sent))
    head, _, text = url.partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(text) == sent.data


@pytest.mark.parametrize("size", [0, 1, 2, 3, (3 << 16) - 1, 3 << 16, (3 << 16) + 1, 500_000])
def test_long_pictures_are_encoded_in_pieces_that_fit_together(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    url: str = json.loads(data_url(Encoded(media="image/png", data=data[:size])))
    assert url == "data:image/png;base64," + base64.b64encode(data[:size]).decode()


# --- as KVV does -----------------------------------------------------------------------------------


def test_kvvs_bytes_are_those_of_pillow_with_its_defaults() -> None:
    data = drawn(size=(64, 48))
    buffer, lower = io.BytesIO(), io.BytesIO()
    opened(data).save(buffer, format="JPEG")
    opened(data).save(lower, format="JPEG", quality=60)
    assert encode_picture(data, KVV).data == buffer.getvalue() != lower.getvalue()
    assert encode_picture(data, KVV).media == "image/jpeg"


def test_a_jpeg_is_encoded_once_more_too() -> None:
    data = drawn(form="JPEG", quality=95)
    assert encode_picture(data, KVV).data != data


def test_transparent_pixels_show_what_lies_beneath_black_where_that_is_nothing() -> None:
    clear = Image.new("RGBA", (20, 10), (0, 0, 0, 0))
    tinted = Image.new("RGBA", (20, 10), (200, 100, 50, 0))
    for picture, seen in ((clear, 0), (tinted, 200)):
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")
        assert abs(pixel(encode_picture(buffer.getvalue(), KVV).data)[0] - seen) < 4


@pytest.mark.parametrize(
    ("mode", "form"),
    [
        ("1", "PNG"),
        ("L", "PNG"),
        ("LA", "PNG"),
        ("P", "PNG"),
        ("RGB", "PNG"),
        ("RGBA", "PNG"),
        ("I;16", "PNG"),
        ("CMYK", "JPEG"),
        ("YCbCr", "JPEG"),
        ("L", "JPEG"),
        ("PA", "TIFF"),
        ("CMYK", "TIFF"),
        ("YCbCr", "TIFF"),
        ("LAB", "TIFF"),
        ("I", "TIFF"),
        ("F", "TIFF"),
        ("I;16", "TIFF"),
        ("LA", "TIFF"),
        ("RGBA", "WEBP"),
        ("P", "GIF"),
        ("P", "BMP"),
    ],
)
def test_every_mode_can_be_sent_both_ways(mode: str, form: str) -> None:
    colour = {"I": 40_000, "I;16": 40_000, "F": 0.5}.get(mode)
    data = Image.new("LAB", (20, 10), (150, 130, 120)) if mode == "LAB" else None
    if data is not None:
        buffer = io.BytesIO()
        data.save(buffer, form)
        raw = buffer.getvalue()
    else:
        raw = drawn(mode, form, colour=colour)
    assert opened(encode_picture(raw, KVV).data).mode in ("L", "RGB")
    assert opened(encode_picture(raw, AS_IS).data).size == (20, 10)


@pytest.mark.parametrize(
    ("mode", "value", "grey"),
    [("I;16", 40_000, 155), ("I;16", 65_535, 255), ("I", 40_000, 155), ("I", 90, 90), ("F", 0.5, 127)],
)
def test_deep_grey_is_scaled_where_pillow_would_clip_it(mode: str, value: float, grey: int) -> None:
    found = pixel(encode_picture(drawn(mode, "TIFF", colour=value), KVV).data)
    assert abs(found - grey) <= 2


def test_a_cmyk_jpeg_shows_its_colours() -> None:
    assert all(
        abs(a - b) < 8
        for a, b in zip(pixel(encode_picture(drawn("CMYK", "JPEG"), KVV).data), (200, 100, 50), strict=True)
    )


# --- hostile bytes ---------------------------------------------------------------------------------


def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", b"")
        + chunk(b"IEND", b"")
    )


def said(data: bytes) -> str:
    with pytest.raises(ImageError) as caught:
        inspect(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("width", "height"), [(10_000, 9_000), (60_000, 60_000), (2**31 - 1, 2**31 - 1)])
def test_bombs_are_refused_before_a_pixel_is_decoded(width: int, height: int) -> None:
    assert width * height > MAX_PIXELS
    assert "decompression bomb" in said(png_header(width, height)) or "cannot be decoded" in said(
        png_header(width, height)
    )


def test_the_largest_public_picture_is_no_bomb() -> None:
    assert inspect(png_header(4961, 7016)).width == 4961


def test_what_is_no_picture_is_said_in_one_clause() -> None:
    assert "Git LFS pointer" in said(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    assert "is empty" in said(b"")
    assert "no picture of a known format" in said(b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    # PostScript would start another program
    assert "no picture of a known format" in said(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_a_picture_cut_short_is_never_sent(form: str) -> None:
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 80).convert("RGB").save(buffer, form)
    cut = buffer.getvalue()[: buffer.tell() // 2]
    for way in PictureForm:
        with pytest.raises(ImageError, match="cannot be decoded"):
            encode_picture(cut, way)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"]), st.data())
def test_damaged_pictures_raise_nothing_else(form: str, source: st.DataObject) -> None:
    data = bytearray(drawn(form=form))
    for _ in range(source.draw(st.integers(1, 6))):
        data[source.draw(st.integers(0, len(data) - 1))] = source.draw(st.integers(0, 255))
    for act in (lambda: inspect(bytes(data)), lambda: encode_picture(bytes(data), KVV)):
        said = ""
        try:
            act()
        except ImageError as error:
            said = str(error)
        assert "\n" not in said
