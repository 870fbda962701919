"""Group g: images that are moved, resized, mixed up, dropped or refused.

The endpoint sees no pixels. A wrong view of an image shows as the wrong reply of the answer key, or as another value
than the picture's comment names (for some faults only in a share of the answers, as in reality), a wrong size also as a
wrong token count.
"""

from dataclasses import replace

from kvv.mockserver.config import JsonObject
from kvv.mockserver.content.compose import Draft
from kvv.mockserver.content.prompt import Rendering
from kvv.mockserver.errors import ApiError
from kvv.mockserver.faults.edits import body_images
from kvv.mockserver.faults.model import ServerFault, Turn
from kvv.mockserver.validation.images import Image
from kvv.mockserver.validation.request import ChatRequest

_BLUR, _SEAMS = 0.3, 0.4
_K3_WRONG_SCALE = 0.518
_WRONG_PATCH = 34  # 100 tokens where 144 are right
_SMALL_SIDE = 28


def _images(turn: Turn) -> tuple[Image, ...]:
    return () if turn.request is None else tuple(image for message in turn.request.messages for image in message.images)


def _images_first(_turn: Turn, request: ChatRequest) -> ChatRequest:
    moved = (
        replace(message, parts=(*message.images, *(part for part in message.parts if isinstance(part, str))))
        for message in request.messages
    )
    return replace(request, messages=tuple(moved))


def _wrong_when_moved(turn: Turn, right: bool) -> bool:
    """Hoisting changes what the model sees if a text stands before an image and the order matters: with two images.

    The order is that of the body, for the request's is changed already. Pictures that say what they show need no wrong
    reply: the question finds other parts.
    """
    if any(image.shows for image in _images(turn)):
        return right
    messages = turn.body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        kinds = (
            [isinstance(part, dict) and part.get("type") == "image_url" for part in content]
            if isinstance(content, list)
            else []
        )
        if sum(kinds) > 1 and kinds != sorted(kinds, reverse=True):
            return False
    return right


def _blurred(turn: Turn, right: bool) -> bool:
    return right and not (_images(turn) and turn.chance("G04", _BLUR))


def _shuffled(turn: Turn, right: bool) -> bool:
    return right and not (_images(turn) and turn.chance("G06", _SEAMS))


def _half_size(_turn: Turn, rendering: Rendering) -> Rendering:
    return replace(rendering, image_scale=_K3_WRONG_SCALE)


def _budget_refused(turn: Turn, body: JsonObject) -> JsonObject:
    if body_images(body) and body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
        raise ApiError(
            "the prompt and the default output budget exceed the context", param="max_tokens", reason="context"
        )
    return body


def _first_image_answer(turn: Turn, draft: Draft, _index: int) -> Draft:
    """One cache entry per text: what was said of the first image is said of every other."""
    digests = tuple(image.digest for image in _images(turn))
    if not digests or turn.request is None:
        return draft
    text = turn.request.last_user.text if turn.request.last_user is not None else ""
    known = turn.memory.setdefault("G11", {})
    first_digests, first_draft = known.setdefault(text, (digests, draft))
    result: Draft = draft if first_digests == digests else first_draft
    return result


def _fails_on_repeat(turn: Turn, request: ChatRequest) -> ChatRequest:
    seen = turn.memory.setdefault("G12", set())
    digests = {image.digest for message in request.messages for image in message.images}
    if digests & seen:
        raise ApiError(
            "attempted to assign image tokens to 0 placeholders", status=500, kind="server_error", reason="fault"
        )
    seen.update(digests)
    return request


def _no_images(_turn: Turn, request: ChatRequest) -> ChatRequest:
    messages = tuple(
        replace(message, parts=tuple(part for part in message.parts if isinstance(part, str)))
        for message in request.messages
    )
    return replace(request, messages=messages)


def _blind(turn: Turn, right: bool) -> bool:
    return right and not body_images(turn.body)


def _wrong_patch(_turn: Turn, rendering: Rendering) -> Rendering:
    return replace(rendering, image_patch=_WRONG_PATCH)


def _small_fails(_turn: Turn, request: ChatRequest) -> ChatRequest:
    if any(min(image.width, image.height) < _SMALL_SIDE for message in request.messages for image in message.images):
        raise ApiError("image features and image tokens do not match", status=500, kind="server_error", reason="fault")
    return request


FAULTS = (
    ServerFault(
        id="G01",
        group="g",
        summary="images are moved before all text",
        mode="both",
        areas=("vision",),
        on_request=_images_first,
        on_right=_wrong_when_moved,
    ),
    ServerFault(
        id="G03",
        group="g",
        summary="media always comes first",
        mode="both",
        areas=("vision",),
        on_request=_images_first,
        on_right=_wrong_when_moved,
    ),
    ServerFault(
        id="G04",
        group="g",
        summary="a coarse resize makes three in ten image answers wrong",
        mode="both",
        areas=("vision", "accuracy"),
        on_right=_blurred,
    ),
    ServerFault(
        id="G05",
        group="g",
        summary="images are scaled to 0.518",
        mode="both",
        areas=("vision", "usage"),
        on_rendering=_half_size,
    ),
    ServerFault(
        id="G06",
        group="g",
        summary="patches are shuffled: four in ten image answers are wrong",
        mode="both",
        areas=("vision", "accuracy"),
        on_right=_shuffled,
    ),
    ServerFault(
        id="G10",
        group="g",
        summary="an image without max_tokens is refused",
        mode="both",
        areas=("vision", "errors"),
        on_body=_budget_refused,
    ),
    ServerFault(
        id="G11",
        group="g",
        summary="all images share one cache entry per text",
        mode="both",
        areas=("vision",),
        on_draft=_first_image_answer,
    ),
    ServerFault(
        id="G12",
        group="g",
        summary="the same image fails the second time",
        mode="both",
        areas=("vision", "errors"),
        on_request=_fails_on_repeat,
    ),
    ServerFault(
        id="G13",
        group="g",
        summary="images are dropped",
        mode="both",
        areas=("vision", "usage"),
        on_request=_no_images,
        on_right=_blind,
    ),
    ServerFault(
        id="G15",
        group="g",
        summary="the patch size is wrong",
        mode="both",
        areas=("vision", "usage"),
        on_rendering=_wrong_patch,
    ),
    ServerFault(
        id="G16",
        group="g",
        summary="an image with a side below 28 pixels fails",
        mode="both",
        areas=("vision", "errors"),
        on_request=_small_fails,
    ),
)
