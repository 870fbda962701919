"""AIME 2025: thirty competition problems with integer answers."""
