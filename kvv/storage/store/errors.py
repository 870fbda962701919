"""What can go wrong with a run's file, said in one line."""

from __future__ import annotations


class StoreError(ValueError):
    """The store cannot be opened, read or written; the message is one line and names the file."""


class NotStorableError(StoreError):
    """A value that is not JSON-like was handed over (a bug of the caller's); the store itself is unharmed."""


class WriteError(StoreError):
    """What was put could not be written: the disk is full or failed. What was acknowledged before is whole, and the run
    can be continued.
    """


class UnknownCaseError(StoreError):
    """The run has no such case; the store itself is unharmed."""
