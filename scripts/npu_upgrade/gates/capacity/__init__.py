"""How long a context and how many sequences a model serves: what fits in theory, and what was served."""
