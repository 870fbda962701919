"""Performing a plan: executor, scheduling, endpoints, worker processes, progress."""
