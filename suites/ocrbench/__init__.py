"""OCRBench v1: a thousand questions about text in pictures."""
