"""Tool calls."""

#: place in the report
ORDER = 30
