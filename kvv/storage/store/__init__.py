"""The store of a run. The only package that imports sqlite3."""

from __future__ import annotations

from kvv.storage.store.errors import NotStorableError, StoreError, UnknownCaseError, WriteError
from kvv.storage.store.rows import (
    FindingGroup,
    LostRequest,
    RoleTraffic,
    StoredEvent,
    StoredExchange,
    TimingSample,
    Traffic,
)
from kvv.storage.store.store import Store

__all__ = [
    "FindingGroup",
    "LostRequest",
    "NotStorableError",
    "RoleTraffic",
    "Store",
    "StoreError",
    "StoredEvent",
    "StoredExchange",
    "TimingSample",
    "Traffic",
    "UnknownCaseError",
    "WriteError",
]
