"""The thinking switch, effort, the reasoning field, and reasoning in the history."""

#: place in the report
ORDER = 70
