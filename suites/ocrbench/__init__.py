"""OCRBench v1: a thousand questions about text in pictures."""

#: place in the report
ORDER = 130
