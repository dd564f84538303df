"""Gates that run the code: what they need, start, observe and decide."""
