"""Which requests the mock server accepts."""
