"""Attributes and methods that are missing, hidden or never read: what the checks on them share."""
