"""Views of a run: pure functions from a ``RunView`` to text. Everything that came over the wire is hostile and bounded
here.
"""
