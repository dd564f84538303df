"""What does not hold between a downstream and what it builds on, from source alone."""
