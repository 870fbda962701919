"""Whether response_format is obeyed, and malformed ones are refused."""
