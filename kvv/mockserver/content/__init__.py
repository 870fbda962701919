"""What the mock server says: text, calls, values for schemas, and how many tokens they have."""
