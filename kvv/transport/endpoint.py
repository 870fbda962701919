"""Where a role's requests go and what they carry: base URL, credentials, proxy. Opens no connection."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

from kvv.core import Credential, Role
from kvv.core.vocabulary import WRONG_KEY
from kvv.protocol.redaction.key_forms import keys_in_path

#: fields of an address's query that say which service is meant
KEYLESS_FIELDS = frozenset(
    {"api-version", "api_version", "apiversion", "version", "v", "model", "deployment", "region", "format", "stream"}
)
#: words of the protocol and usual user names, and versions and dates such as ``2024-10-21-preview``
_KEYLESS_VALUE = re.compile(
    r"true|false|yes|no|on|off|v?\d{1,3}(\.\d{1,3}){0,2}|\d{4}-\d\d-\d\d(-preview)?|user|username|assistant|system|tool|model|admin|root|default|api|apikey|api-key|x",
    re.IGNORECASE,
)


class EndpointError(ValueError):
    """A base URL, key or header that no request can be made with; the message is one line and holds no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where one role's requests go. ``key`` is sent as a bearer token; ``headers`` are laid over everything else.

    ``discreet``: nothing in a request's head names kvv; the HTTP client then names itself, as it does for everybody.
    """

    role: Role
    base_url: str
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    discreet: bool = False


def base_url(endpoint: Endpoint) -> SplitResult:
    """The parsed base URL without userinfo, its path without a final slash. Raises EndpointError."""
    try:
        parts = urlsplit(endpoint.base_url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise EndpointError(f"{endpoint.role} base URL: not a URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise EndpointError(f"{endpoint.role} base URL: must begin with http:// or https:// and name a host")
    literal = f"[{host}]" if ":" in host else host
    return parts._replace(
        netloc=literal if port is None else f"{literal}:{port}", path=parts.path.rstrip("/"), fragment=""
    )


def headers(endpoint: Endpoint, credential: Credential = Credential.OWN) -> dict[str, str]:
    """Userinfo of the URL is a basic credential; a key goes over it, and the endpoint's own headers over both."""
    sent = {
        "accept": "application/json",
        "accept-encoding": "gzip, deflate",
        "content-type": "application/json",
    }
    if not endpoint.discreet:
        sent["user-agent"] = "kvv"
    parts = urlsplit(endpoint.base_url.strip())
    if parts.username is not None:
        userinfo = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        sent["authorization"] = "Basic " + base64.b64encode(userinfo.encode()).decode()
    if endpoint.key:
        sent["authorization"] = f"Bearer {endpoint.key.strip()}"
    if credential is not Credential.OWN:
        sent.pop("authorization", None)
    if credential is Credential.WRONG:
        sent["authorization"] = f"Bearer {WRONG_KEY.removeprefix('kvv-') if endpoint.discreet else WRONG_KEY}"
    sent |= {name.lower(): value for name, value in endpoint.headers.items()}
    for name, value in sent.items():
        if not (
            value.isprintable()
            and value.isascii()
            and name.isascii()
            and name.isprintable()
            and name.strip(": ") == name
        ):
            raise EndpointError(f"{endpoint.role} header {name!r}: no such name or value can be sent")
    return sent


def secrets(endpoint: Endpoint, proxy: str | None) -> list[str | None]:
    """Everything in an endpoint and its proxy that must not come out again."""
    found = [endpoint.key, *in_address(endpoint.base_url), *in_address(proxy or "")]
    sensitive = ("auth", "key", "token", "secret", "cookie")
    return found + [
        value.rpartition(" ")[2]
        for name, value in endpoint.headers.items()
        if any(word in name.lower() for word in sensitive)
    ]


def in_address(url: str) -> list[str]:
    """User name, password, the values of the query and what looks like a key in the path, as written and decoded;
    never raises.

    Left out are fields of the query that name a service, and words that stand in any answer: hiding those would only
    garble answers.
    """
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return []
    fields = (part.partition("=") for part in parts.query.split("&"))
    values = [value if sign else name for name, sign, value in fields if unquote(name).lower() not in KEYLESS_FIELDS]
    written = [value for value in (parts.username or "", *values) if not _KEYLESS_VALUE.fullmatch(unquote(value))]
    secrets = (parts.password or "", *written, *keys_in_path(parts.path))
    ways = (way for value in secrets for way in (value, unquote(value), unquote_plus(value)))
    return [way for way in dict.fromkeys(ways) if way]


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The environment's proxy for a URL: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, in either case, unless NO_PROXY names the
    host.

    Never for loopback, where no proxy could reach our own reference endpoint.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = _variable(environ, f"{parts.scheme}_proxy") or _variable(environ, "all_proxy")
    exempt = _variable(environ, "no_proxy").replace(",", " ").split()
    if not proxy or _is_loopback(host) or any(_names(entry, host, parts.port) for entry in exempt):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    """The lower-case variable goes first, as in curl."""
    return environ.get(name) or environ.get(name.upper()) or ""


def _names(entry: str, host: str, port: int | None) -> bool:
    """Whether an entry of NO_PROXY means this host: ``*``, a name and all below it, an address, a network; with a port,
    that port only.
    """
    entry = entry.lower()
    if entry == "*":
        return True
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        name, _, only = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
        name = name.lstrip("*.")
        return bool(name) and (not only or only == str(port)) and (host == name or host.endswith(f".{name}"))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
