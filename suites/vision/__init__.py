"""Pictures in requests."""

#: place in the report
ORDER = 90
