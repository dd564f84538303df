"""Gates that need a running server: what its log says, and what it does."""
