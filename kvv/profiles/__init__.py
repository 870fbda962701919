"""What a model promises, what a run must show, and how tokens are counted; the files that ship."""
