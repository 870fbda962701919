"""Streams."""

#: place in the report
ORDER = 20
