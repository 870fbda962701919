"""BEAM: questions about conversations of up to ten million tokens, graded by a judge model."""

#: place in the report
ORDER = 180
