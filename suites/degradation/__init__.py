"""Answers that get worse with caches, load or time."""

#: place in the report
ORDER = 120
