"""Pictures of data sets: where their bytes lie, and the one place where they become part of a request.

Rows and cases hold a ``Picture``, a few words; its bytes stay on disk. A picture that has a file of its own is read
from it; pictures inside a parquet file or a data-set folder are copied once, while the rows are read, to an unnamed
temporary file, for there is no reading one row of a compressed column without unpacking its neighbours. So memory does
not grow with the number of pictures.
"""

from __future__ import annotations

import hashlib
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, Any

from kvv.core import Fragment, Picture
from kvv.data.cache import cache_folder
from kvv.data.spec import DataError, one_line
from kvv.protocol.images import ImageError, data_url, encode_picture, inspect


@dataclass(frozen=True, slots=True)
class _Place:
    """``path`` None: in the temporary file."""

    path: Path | None
    offset: int
    size: int


class Shelf:
    """Knows for every picture of this process where its bytes lie. Safe from any thread.

    The temporary file has no name where the system allows it: nothing is left behind even by a killed process.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._places: dict[str, _Place] = {}
        self._spool: IO[bytes] | None = None
        self._end = 0
        self._lock = Lock()

    def keep(self, data: bytes, where: str) -> Picture:
        """A picture that has no file of its own. DataError where the bytes are no picture."""
        return self._picture(data, where, None)

    def keep_file(self, path: Path, where: str) -> Picture:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DataError(f"{where}: {path}: {error.strerror or one_line(error)}") from error
        return self._picture(data, where, path)

    def _picture(self, data: bytes, where: str, path: Path | None) -> Picture:
        try:
            facts = inspect(data)
        except ImageError as error:
            raise DataError(f"{where}: {error if path is None else f'{path.name} {error}'}") from error
        digest = hashlib.sha256(data).hexdigest()
        with self._lock:
            if digest not in self._places or path is not None:
                self._places[digest] = _Place(path, 0, len(data)) if path is not None else self._spooled(data)
        return Picture(
            digest=digest, size=len(data), media=facts.media, width=facts.width, height=facts.height, where=where
        )

    def _spooled(self, data: bytes) -> _Place:
        if self._spool is None:
            self._spool = _temporary(self._folder)
            weakref.finalize(self, self._spool.close)
        place = _Place(None, self._end, len(data))
        try:
            self._spool.seek(self._end)
            self._spool.write(data)
        except OSError as error:
            raise DataError(
                f"pictures cannot be kept in a temporary file: {error.strerror or one_line(error)}"
            ) from error
        self._end += len(data)
        return place

    def read(self, picture: Picture) -> bytes:
        """The bytes as the data set has them; blocks. DataError where they are gone or have changed since."""
        place = self._places.get(picture.digest)
        if place is None:
            raise DataError(f"{picture.where}: this run has not read its data set")
        try:
            if place.path is not None:
                data = place.path.read_bytes()
            else:
                with self._lock:
                    assert self._spool is not None
                    self._spool.seek(place.offset)
                    data = self._spool.read(place.size)
        except OSError as error:
            raise DataError(f"{picture.where}: {error.strerror or one_line(error)}") from error
        if hashlib.sha256(data).hexdigest() != picture.digest:
            raise DataError(f"{picture.where}: its bytes have changed since the data set was read")
        return data


def _temporary(folder: Path | None) -> IO[bytes]:
    """In the cache folder, which is on a real disk; the system's folder for temporary files may be memory."""
    folder = folder or cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=folder)
    except OSError:
        return tempfile.TemporaryFile()


SHELF = Shelf()


# --- into rows -----------------------------------------------------------------------------------


def from_cell(value: object, where: str, folder: Path | None, shelf: Shelf = SHELF) -> Any:
    """A cell of an image column as a Picture: a mapping with ``bytes`` (as the hub serves it) or ``path``, or the path
    of a file below ``folder``.

    Everything else comes back as it is, for the check of the columns to complain about. DataError for what is no
    picture.
    """
    if isinstance(value, Mapping):
        data, path = value.get("bytes"), value.get("path")
        if isinstance(data, bytes | bytearray | memoryview):
            return shelf.keep(bytes(data), where)
        value = path if data is None else value
    if isinstance(value, str) and folder is not None:
        return shelf.keep_file(_found(value, folder, where), where)
    return value


def _found(name: str, folder: Path, where: str) -> Path:
    """The file below ``folder`` or below one of its own folders (the official JSON stands beside a folder of pictures);
    nothing outside of it.
    """
    root = folder.resolve()
    try:
        places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))]
        for place in places:
            path = (place / name).resolve()
            if path.is_file():
                if not path.is_relative_to(root):
                    raise DataError(f"{where}: {name!r:.100} lies outside of {folder}")
                return path
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"{where}: {name!r:.100}: {one_line(error, 80)}") from error
    raise DataError(f"{where}: there is no picture {name!r:.100} in {folder} or its folders")


# --- into requests -------------------------------------------------------------------------------


def pictures_of(body: object) -> list[Picture]:
    """The pictures of a request body, in order. Looks only where a picture may stand, so that a long body costs
    nothing.
    """
    return [part["image_url"]["url"] for message in _messages(body) for part in _parts(message) if _shows(part)]


def with_pictures(body: Mapping[str, Any], shelf: Shelf = SHELF) -> Mapping[str, Any]:
    """The body with each picture as the base64 data URL that is sent, serialised once. Blocks: reads, decodes and
    encodes. DataError.
    """
    messages = [
        {**message, "content": [_sent(part, shelf) if _shows(part) else part for part in parts]}
        if (parts := _parts(message))
        else message
        for message in _messages(body)
    ]
    return {**body, "messages": messages}


def _messages(body: object) -> Sequence[Any]:
    messages = body.get("messages") if isinstance(body, Mapping) else None
    return messages if isinstance(messages, list | tuple) else ()


def _parts(message: object) -> Sequence[Any]:
    parts = message.get("content") if isinstance(message, Mapping) else None
    return parts if isinstance(parts, list | tuple) else ()


def _shows(part: object) -> bool:
    shown = part.get("image_url") if isinstance(part, Mapping) else None
    return isinstance(shown, Mapping) and isinstance(shown.get("url"), Picture)


def _sent(part: Mapping[str, Any], shelf: Shelf) -> dict[str, Any]:
    picture: Picture = part["image_url"]["url"]
    try:
        url = data_url(encode_picture(shelf.read(picture), picture.form))
    except ImageError as error:
        raise DataError(f"{picture.where}: {error}") from error
    return {**part, "image_url": {**part["image_url"], "url": Fragment.of(url)}}


def sent_digest(picture: Picture, shelf: Shelf = SHELF) -> str:
    """The SHA-256 of the bytes that are sent: what a server that keeps an answer key will see. Blocks."""
    try:
        return hashlib.sha256(encode_picture(shelf.read(picture), picture.form).data).hexdigest()
    except ImageError as error:
        raise DataError(f"{picture.where}: {error}") from error
