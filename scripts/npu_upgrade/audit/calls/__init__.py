"""Overrides, calls and results that do not fit: what the checks on signatures, calls and arity share."""
