"""The thinking switch, effort, the reasoning field, and reasoning in the history."""
