"""MMMU-Pro: college-level multiple-choice questions with pictures."""
