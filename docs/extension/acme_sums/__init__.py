"""Sums: a benchmark, a profile and an importer from outside kvv."""
