"""Pre-check of the decoding parameters: the gate."""

#: place in the report
ORDER = 10
