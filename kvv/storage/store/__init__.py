"""The store of a run. The only package that imports sqlite3."""

from __future__ import annotations

from kvv.storage.store.errors import NotStorableError, StoreError, UnknownCaseError, WriteError
from kvv.storage.store.rows import (
    LostRequest,
    RoleTraffic,
    StoredEvent,
    StoredExchange,
    StoredFindings,
    StoredTraffic,
    TimingSample,
)
from kvv.storage.store.store import Store

__all__ = [
    "LostRequest",
    "NotStorableError",
    "RoleTraffic",
    "Store",
    "StoreError",
    "StoredEvent",
    "StoredExchange",
    "StoredFindings",
    "StoredTraffic",
    "TimingSample",
    "UnknownCaseError",
    "WriteError",
]
