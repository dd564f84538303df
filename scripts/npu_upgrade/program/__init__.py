"""Code of several trees taken together: what names stand for, what methods do and reach. Nothing is run."""
