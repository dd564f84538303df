"""The feature matrix: how each feature is asked for in the release at hand, and what proves that it works."""
