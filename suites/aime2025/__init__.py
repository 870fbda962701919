"""AIME 2025: thirty competition problems with integer answers."""

#: place in the report
ORDER = 150
