"""The suites, one folder each; imported only as ``kvv.suites``."""
