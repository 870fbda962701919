"""Bytes on the wire: encoding of requests, event streams, JSON text, and decoding into observations. Pure folds."""
