"""Long prompts."""

#: place in the report
ORDER = 100
