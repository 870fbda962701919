"""The command line: verbs, options, and the pytest plugin."""
