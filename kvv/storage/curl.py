"""A curl line that repeats a stored request; the key is named, never written."""

from __future__ import annotations

import shlex

from kvv.core import Credential
from kvv.core.vocabulary import WRONG_KEY
from kvv.storage.store import StoredExchange

#: a longer body does not fit a line that people paste
INLINE_BYTES = 4_000
_KEY = {
    Credential.OWN: ' -H "Authorization: Bearer $KVV_API_KEY"',
    Credential.NONE: "",
    Credential.WRONG: f' -H "Authorization: Bearer {WRONG_KEY}"',
}


def curl_line(base_url: str, stored: StoredExchange, *, body_file: str = "body.json") -> str:
    """The request as one shell line for POSIX shells; a large body comes from ``body_file`` (see `kvv show
    --export`).
    """
    url = (
        base_url.rstrip("/") + stored.request.path
        if base_url.startswith("http")
        else "$KVV_BASE_URL" + stored.request.path
    )
    body = stored.body
    data = (
        shlex.quote(body.decode("utf-8", "replace"))
        if len(body) <= INLINE_BYTES and b"\0" not in body
        else f"@{body_file}"
    )
    no_buffer = " -N" if stored.request.stream else ""
    quoted = f'"{url}"' if url.startswith("$") else shlex.quote(url)
    return (
        f'curl{no_buffer} {quoted}{_KEY[stored.request.credential]} -H "Content-Type: application/json" --data-binary'
        f" {data}"
    )
