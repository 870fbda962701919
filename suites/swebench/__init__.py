"""SWE-bench: a coding agent through the endpoint, graded in a sandbox."""

#: place in the report
ORDER = 170
