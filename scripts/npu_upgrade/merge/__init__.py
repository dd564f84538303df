"""The copies of a downstream on a new upstream: each merged, and the plan of what is left."""
