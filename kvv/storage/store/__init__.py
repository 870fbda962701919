"""The store of a run. The only package that imports sqlite3."""

from __future__ import annotations

from kvv.storage.store.errors import NotStorableError, StoreError, UnknownCaseError, WriteError
from kvv.storage.store.rows import (
    AttemptHead,
    LostRequest,
    RoleTraffic,
    StoredAttempt,
    StoredEvent,
    StoredExchange,
    StoredFindings,
    StoredTraffic,
    TimingSample,
)
from kvv.storage.store.store import Store

__all__ = [
    "AttemptHead",
    "LostRequest",
    "NotStorableError",
    "RoleTraffic",
    "Store",
    "StoreError",
    "StoredAttempt",
    "StoredEvent",
    "StoredExchange",
    "StoredFindings",
    "StoredTraffic",
    "TimingSample",
    "UnknownCaseError",
    "WriteError",
]
