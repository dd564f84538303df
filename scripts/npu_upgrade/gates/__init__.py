"""Gates that run the code: what they need, what they start, what they decide."""
