"""Images in requests: what they are, how large they are, how many tokens they cost.

Sizes are read from the file headers, so that no imaging library is needed. Where Pillow is installed, it also checks
that the pixels can be decoded. The real model's image token formula is not public; here an image
costs one token for every 28 x 28 pixels, as in the K2.5 processor. Nobody looks at the pixels: a picture may say what
it shows in a comment of its file (``kvv-shows: 4817`` and a line feed), and that is what the endpoint sees.
"""

import base64
import binascii
import hashlib
import importlib
import io
import re
import struct
from dataclasses import dataclass
from math import ceil

from kvv.mockserver.errors import ApiError

_DATA_URL = re.compile(r"data:([a-zA-Z0-9.+/-]+)(?:;[a-zA-Z0-9.+-]+=[a-zA-Z0-9.+%-]+)*;base64,", re.ASCII)
_ACCEPTED = {"image/png", "image/jpeg", "image/jpg", "image/webp", "image/gif"}
_SHOWS = re.compile(rb"kvv-shows: ([ -~]{1,60})\n")
PATCH = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image of a request. ``digest`` is the hex SHA-256 of its bytes; sizes are in pixels.

    ``shows`` is what the picture says of itself, "" if it says nothing.
    """

    digest: str
    media: str
    width: int
    height: int
    shows: str = ""

    def tokens(self, patch: int = PATCH, scale: float = 1.0) -> int:
        """Tokens of this image when it is resized by ``scale`` and cut into squares of ``patch`` pixels."""
        return max(1, ceil(self.width * scale / patch)) * max(1, ceil(self.height * scale / patch))


def image_from_url(url: str) -> Image:
    """The image of a base64 data URL; anything else is refused as the platform refuses it."""
    head = _DATA_URL.match(url)
    if head is None:
        raise ApiError("image_url must be a base64 data URL", param="messages", reason="media")
    media = head.group(1).lower()
    if media not in _ACCEPTED:
        raise ApiError(f"unsupported image type: {media}", param="messages", reason="media")
    try:
        data = base64.b64decode(url[head.end() :], validate=True)
    except (binascii.Error, ValueError):
        raise ApiError("image data is not base64", param="messages", reason="media") from None
    return _image_from_bytes(data)


def _image_from_bytes(data: bytes) -> Image:
    sniffed = _sniff(data)
    if sniffed is None:
        raise ApiError("image data is not png, jpeg, webp or gif", param="messages", reason="media")
    media, width, height = sniffed
    if width < 1 or height < 1:
        raise ApiError("image has no size", param="messages", reason="media")
    _check_pixels(data)
    said = _SHOWS.search(data)
    shows = "" if said is None else said[1].decode("ascii")
    return Image(digest=hashlib.sha256(data).hexdigest(), media=media, width=width, height=height, shows=shows)


def _check_pixels(data: bytes) -> None:
    try:
        pillow = importlib.import_module("PIL.Image")
    except ImportError:
        return
    try:
        with pillow.open(io.BytesIO(data)) as picture:
            picture.verify()
    except Exception:  # noqa: BLE001  Pillow raises many kinds on a damaged file, all of them mean the same here
        raise ApiError("image cannot be decoded", param="messages", reason="media") from None


def _sniff(data: bytes) -> tuple[str, int, int] | None:
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return "image/png", width, height
    if data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 10:
        width, height = struct.unpack("<HH", data[6:10])
        return "image/gif", width, height
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) >= 30:
        return _sniff_webp(data)
    if data[:3] == b"\xff\xd8\xff":
        return _sniff_jpeg(data)
    return None


def _sniff_webp(data: bytes) -> tuple[str, int, int] | None:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            return "image/webp", width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return "image/webp", (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
        case b"VP8X":
            return "image/webp", int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return None


def _sniff_jpeg(data: bytes) -> tuple[str, int, int] | None:
    at = 2
    while at + 9 < len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF or 0xD0 <= marker <= 0xD8 or marker == 0x01:
            at += 1 if marker == 0xFF else 2
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return "image/jpeg", width, height
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
