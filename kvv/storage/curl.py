"""A curl line that repeats a stored request; the key is named, never written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from kvv.core import Credential
from kvv.core.vocabulary import WRONG_KEY
from kvv.storage.store import StoredExchange

#: a longer body does not fit a line that people paste
INLINE_BYTES = 4_000
#: what may stand in a line as a variable's name, and as a header's
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_HEADER = re.compile(r"[A-Za-z0-9_-]{1,200}")
#: of runs that do not say which variable held their key
KEY = "KVV_API_KEY"


def curl_line(meta: Mapping[str, Any], stored: StoredExchange, *, body_file: str = "body.json") -> str:
    """The request as one shell line for POSIX shells; a large body comes from ``body_file`` (see `kvv show
    --export`). ``meta`` is the run's: address, and the names of the variables that hold key and headers.
    """
    base_url = str(meta.get("base_url") or "")
    path = stored.request.path
    url = base_url.rstrip("/") + path if base_url.startswith("http") else "$KVV_BASE_URL" + path
    body = stored.body
    data = (
        shlex.quote(body.decode("utf-8", "replace"))
        if len(body) <= INLINE_BYTES and b"\0" not in body
        else f"@{body_file}"
    )
    no_buffer = " -N" if stored.request.stream else ""
    quoted = f'"{url}"' if url.startswith("$") else shlex.quote(url)
    headers = "".join(f' -H "{header}"' for header in _headers(meta, stored.request.credential))
    return f'curl{no_buffer} {quoted}{headers} -H "Content-Type: application/json" --data-binary {data}'


def variables(meta: Mapping[str, Any]) -> list[str]:
    """Names of the variables that a line of this run needs."""
    named = meta.get("header_env")
    names = [meta.get("api_key_env", KEY), *(named.values() if isinstance(named, Mapping) else ())]
    return [name for name in names if isinstance(name, str) and _VARIABLE.fullmatch(name)]


def _headers(meta: Mapping[str, Any], credential: Credential) -> Iterator[str]:
    """Every header that was sent with a secret, by its variable: a run's record may be anybody's, so that what is no
    name is left out."""
    key = meta.get("api_key_env", KEY)
    if credential is Credential.WRONG:
        yield f"Authorization: Bearer {WRONG_KEY}"
    elif credential is Credential.OWN and isinstance(key, str) and _VARIABLE.fullmatch(key):
        yield f"Authorization: Bearer ${key}"
    named = meta.get("header_env")
    for name, variable in named.items() if isinstance(named, Mapping) else ():
        if _HEADER.fullmatch(str(name)) and isinstance(variable, str) and _VARIABLE.fullmatch(variable):
            yield f"{name}: ${variable}"
