"""Load on one endpoint: what is sent, a ladder of steps, what was measured."""
