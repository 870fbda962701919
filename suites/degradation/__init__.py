"""Answers that get worse with caches, load or time."""
