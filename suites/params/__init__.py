"""Pre-check of the decoding parameters: the gate."""
