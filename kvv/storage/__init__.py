"""What is kept of runs: the store, run folders, metadata, snapshots, baselines, references, imports."""
