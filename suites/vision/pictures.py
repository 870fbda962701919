"""Pictures as content parts: ``{ "@picture" = { number = 4817, format = "png", ... } }`` in a case file."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kvv.cases.contract.build import Answers, Builder
from kvv.suites.vision.drawing import Drawing, DrawingError, draw_picture
from kvv.suites.vision.other_formats import gif, jpeg, webp
from kvv.suites.vision.png import png

#: what the picture shows, in the file's own comment: our reference endpoint has no eyes and reads it; no model does
COMMENT = "kvv-shows: {shows}\n"


#: EXIF orientations -> quarter turns anticlockwise of the stored pixels that the viewer turns back
TURNS = {3: 2, 6: 1, 8: 3}


def file_of(picture: Drawing, kind: str, mode: str = "rgb", orientation: int = 0) -> bytes:
    """The picture as an image file: png (in one of its modes), gif, jpeg or webp. Raises DrawingError.

    ``orientation``, of a jpeg: its pixels are stored turned, and EXIF says how they are to be turned back.
    """
    comment = COMMENT.format(shows=picture.shows)
    if orientation:
        if kind != "jpeg" or orientation not in TURNS:
            raise DrawingError(f"no orientation {orientation!r:.20} of a {kind:.20}; known: jpeg with 3, 6, 8")
        return jpeg(picture.turned(TURNS[orientation]), comment, orientation)
    match kind:
        case "png":
            return png(picture, mode, comment)
        case "gif":
            return gif(picture, comment)
        case "jpeg":
            return jpeg(picture, comment)
        case "webp":
            return webp(picture, comment)
    raise DrawingError(f"no format {kind!r}; known: png, gif, jpeg, webp")


def picture_part(argument: Any, answers: Answers) -> dict[str, Any]:
    """``{ number | colour | shape | circles, size, ink, paper, format, mode, orientation, detail, parameters }`` as an
    image part with a data URL; ``parameters`` stand behind its media type.
    """
    image: dict[str, Any] = {
        "url": _data_url(json.dumps({key: value for key, value in argument.items() if key != "detail"}, sort_keys=True))
    }
    if "detail" in argument:
        image["detail"] = argument["detail"]
    return {"type": "image_url", "image_url": image}


@lru_cache(maxsize=64)
def _data_url(described: str) -> str:
    argument = json.loads(described)
    kind, parameters = argument.get("format", "png"), argument.pop("parameters", "")
    turned = argument.pop("orientation", 0)
    data = file_of(draw_picture(argument), kind, argument.get("mode", "rgb"), turned)
    return f"data:image/{kind}{parameters};base64,{base64.b64encode(data).decode('ascii')}"


BUILDERS: Mapping[str, Builder] = {"picture": picture_part}
