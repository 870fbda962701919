"""What the endpoint says of a picture that states in its own comment what it shows (``images.Image.shows``).

Questions are understood by the words that name a picture: ``picture 2``, ``after the word BRAVO``, ``the pictures``,
``the picture``. Which picture stands where is read from the request's parts as the faults left them.
"""

import re

from kvv.mockserver.validation.images import Image
from kvv.mockserver.validation.request import ChatRequest, Message

_NONE = "I see no picture."
_UNCLEAR = "I cannot make this picture out."
_NAMED = re.compile(r"\bpictures?\b", re.I)
# Without a picture only such a question is one about pictures; a long text may speak of a picture in passing.
_ASKED = re.compile(r"\b(?:does|do|is|are) (?:the )?pictures?\b", re.I)
_MANY = re.compile(r"\bpictures\b", re.I)
_NUMBER = re.compile(r"\bpicture (?:number )?(\d{1,4})\b", re.I)
_AFTER = re.compile(r"\bafter the word (\w{1,40})", re.I)
_KINDS = (
    ("red", "green", "blue", "yellow", "black", "white", "orange", "purple", "grey"),
    ("circle", "square", "triangle"),
)


def answer(request: ChatRequest, *, misread: bool = False) -> str | None:
    """What the pictures asked for show, None if this is no question about such pictures.

    ``misread`` gives another value of the same kind instead: other digits, another colour or shape.
    """
    last = request.last_user
    images = [image for message in request.messages for image in message.images]
    if last is None or not _applies(last.text, images):
        return None
    if not images:
        return _NONE
    chosen = _chosen(request, last, images)
    if not chosen:
        return _NONE
    values = [image.shows for image in chosen]
    if not all(values):
        return _UNCLEAR
    if misread:
        values[0] = _another(values[0])
    return ", ".join(values)


def _applies(text: str, images: list[Image]) -> bool:
    if not images:
        return _ASKED.search(text) is not None
    return any(image.shows for image in images) and _NAMED.search(text) is not None


def _chosen(request: ChatRequest, last: Message, images: list[Image]) -> list[Image]:
    """The pictures asked for, empty if there is none at the place that is named."""
    if found := _NUMBER.search(last.text):
        return images[max(int(found[1]), 1) - 1 :][:1]
    if found := _AFTER.search(last.text):
        return [_following(last, found[1]) or images[0]]
    if _MANY.search(last.text):
        return list(last.images)
    shown = [message.images for message in request.messages if message.role == "user" and message.images]
    return [shown[-1][-1]] if shown else images[-1:]


def _following(message: Message, word: str) -> Image | None:
    """The picture right after the text that ends with this word."""
    for part, following in zip(message.parts, message.parts[1:], strict=False):
        if isinstance(part, str) and isinstance(following, Image) and re.search(rf"\b{word}\W*\Z", part):
            return following
    return None


def _another(shown: str) -> str:
    """A different value of the same kind."""
    for kind in _KINDS:
        if shown in kind:
            return kind[(kind.index(shown) + 1) % len(kind)]
    if shown.isascii() and shown.isdecimal():
        return shown[::-1] if shown[::-1] != shown else "".join(str((int(digit) + 1) % 10) for digit in shown)
    return "something else"
