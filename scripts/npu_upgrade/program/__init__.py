"""Several trees taken together: what a name stands for, what a method does. Nothing is run."""
