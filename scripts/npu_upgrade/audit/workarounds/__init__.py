"""Code that the given upstream has made unnecessary: the kinds of the check ``workarounds``."""
