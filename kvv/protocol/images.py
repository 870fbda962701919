"""Pictures as bytes: what they are, and how they are sent. Bytes in, bytes out; no file is opened here.

As they are where the API takes their format (png, jpeg, webp, gif), or re-encoded as KVV does. A
picture is hostile data: only the formats below are decoded, bombs are refused before their pixels are, and whatever
Pillow raises is one line.
"""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from kvv.core import PictureForm

if TYPE_CHECKING:
    from PIL.Image import Image

#: Pillow's own bound for a picture that it finds suspicious; the largest of the public sets has 35 million
MAX_PIXELS = 89_478_485
MAX_BYTES = 100 << 20
#: bytes encoded at once, a multiple of three: base64 holds the interpreter's lock, and other threads have streams to
#: read
BASE64_PIECE = 3 << 16

#: Pillow's names of the formats that are decoded at all (never those that run other programs), and what the API calls
#: them
SENT_AS_IS = {"PNG": "image/png", "JPEG": "image/jpeg", "MPO": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif"}
DECODED = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
#: modes that a JPEG holds and that every decoder shows alike
_JPEG_MODES = frozenset({"1", "L", "RGB"})
_PNG_MODES = frozenset({*_JPEG_MODES, "LA", "P", "RGBA", "I;16"})
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


class ImageError(ValueError):
    """Bytes that cannot be sent as a picture; the message is one clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """``media`` is the MIME type by content; sizes in pixels; ``mode`` is Pillow's."""

    media: str
    width: int
    height: int
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    media: str
    data: bytes


def inspect(data: bytes) -> ImageFacts:
    """What the header says, and the checksums where the format has some; the pixels are not decoded. ImageError."""
    with _opened(data) as picture:
        facts = ImageFacts(
            media=SENT_AS_IS.get(picture.format or "", "image/png"),
            width=picture.width,
            height=picture.height,
            mode=picture.mode,
        )
        picture.verify()
    return facts


def encode_picture(data: bytes, form: PictureForm) -> Encoded:
    """The bytes to send. Every picture is decoded first: one that cannot be would be refused, and the vendor accused of
    it. ImageError.

    AS_IS: unchanged, but formats that the API does not take become PNG. KVV_JPEG: JPEG with Pillow's defaults (quality
    75); modes with transparency or a palette become RGB, so that transparent pixels show the colour beneath, mostly
    black; modes on which KVV's code fails (CMYK, 16 bits, floats) become what they look like.
    """
    with _opened(data) as picture:
        picture.load()
        if form is PictureForm.KVV_JPEG:
            return Encoded(
                media="image/jpeg", data=_saved(picture if picture.mode in _JPEG_MODES else eight_bits(picture), "JPEG")
            )
        media = SENT_AS_IS.get(picture.format or "")
        if media is None:
            return Encoded(
                media="image/png", data=_saved(picture if picture.mode in _PNG_MODES else eight_bits(picture), "PNG")
            )
    return Encoded(media=media, data=data)


def data_url(picture: Encoded) -> bytes:
    """The JSON text of a base64 data URL, quotes included."""
    data = memoryview(picture.data)
    pieces = (base64.b64encode(data[start : start + BASE64_PIECE]) for start in range(0, len(data), BASE64_PIECE))
    return b"".join((b'"data:', picture.media.encode("ascii"), b";base64,", *pieces, b'"'))


def eight_bits(picture: Image) -> Image:
    """RGB or L from any mode. Integer and float grey values are scaled by what they seem to range over: Pillow itself
    would clip them.
    """
    if not picture.mode.startswith(("I", "F")):
        return picture.convert("RGB")
    grey = picture.convert("F")
    extrema = grey.getextrema()
    top = max(value for value in extrema if isinstance(value, int | float))
    if picture.mode.startswith("I;16"):
        scale = 1 / 257
    elif picture.mode == "F" and top <= 1.0:
        scale = 255.0
    else:
        scale = 1.0 if top <= 255 else 255.0 / max(top, 65_535.0) if picture.mode == "I" else 255.0 / top
    return grey.point(lambda value: value * scale + 0).convert("L")


def _saved(picture: Image, form: str) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format=form)
    return buffer.getvalue()


@contextmanager
def _opened(data: bytes) -> Iterator[Image]:
    """Whatever goes wrong inside becomes an ImageError."""
    # imported here: Pillow costs a tenth of a second, and most runs show no picture
    from PIL import Image as pillow
    from PIL import UnidentifiedImageError

    for plugin in ("WebPImagePlugin", "TiffImagePlugin"):  # Pillow loads the others by itself
        import_module(f"PIL.{plugin}")
    if data.startswith(_LFS_POINTER):
        raise ImageError("is a Git LFS pointer, not the picture; fetch it with `git lfs pull`")
    if not data:
        raise ImageError("is empty")
    if len(data) > MAX_BYTES:
        raise ImageError(f"has more than {MAX_BYTES} bytes")
    # as an error the warning comes before any pixel; it is Pillow's alone, and nobody else in this process opens
    # pictures
    warnings.simplefilter("error", pillow.DecompressionBombWarning)
    try:
        with pillow.open(io.BytesIO(data), formats=DECODED) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise ImageError(
                    f"has {picture.width} x {picture.height} pixels, more than {MAX_PIXELS}: a decompression bomb?"
                )
            yield picture
    except ImageError:
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise ImageError(f"has more than {MAX_PIXELS} pixels: a decompression bomb?") from None
    except UnidentifiedImageError:
        raise ImageError(f"is no picture of a known format (begins with {data[:8]!r})") from None
    except Exception as error:  # Pillow's plug-ins raise what they like on damaged files; all of it means the same here
        raise ImageError(f"cannot be decoded ({' '.join(str(error).split())[:120] or type(error).__name__})") from error
