"""MMMU-Pro: college-level multiple-choice questions with pictures."""

#: place in the report
ORDER = 140
