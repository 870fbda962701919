"""Whether tool_choice is obeyed: auto, none, required, a named function, and nonsense."""

#: place in the report
ORDER = 50
