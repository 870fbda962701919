"""Tells whether an endpoint that serves an open-weight model serves it correctly."""

__version__ = "0.1.0"
