"""SWE-bench: a coding agent through the endpoint, graded in a sandbox."""
