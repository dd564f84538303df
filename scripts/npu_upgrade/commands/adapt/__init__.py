"""The commands that only adapt.py has."""
