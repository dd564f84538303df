"""A model's files: configuration, weights, memory, and who serves it."""
