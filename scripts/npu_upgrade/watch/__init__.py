"""What is new upstream since the last look, and what of it a downstream has to react to."""
