"""Tells whether an endpoint that serves an open-weight model serves it correctly."""

__version__ = "0.2.0"
