"""Long prompts."""
