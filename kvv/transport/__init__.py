"""HTTP/1.1 to the endpoints: the only package that imports an HTTP client, in ``client.py``."""

from __future__ import annotations

from kvv.transport.client import Transport
from kvv.transport.endpoint import Endpoint, EndpointError

__all__ = ["Endpoint", "EndpointError", "Transport"]
