"""Running the plan: concurrency, retries, the health breaker, budgets."""
