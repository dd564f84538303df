"""Leads a person or an agent through an upgrade: what is open, one thing at a time, and what was answered."""
