"""The copies of a downstream on a new upstream: the merge of each, and the plan of what is left."""
