"""Whether response_format is obeyed, and malformed ones are refused."""

#: place in the report
ORDER = 60
