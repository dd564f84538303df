"""The checks, one module each: ``ABOUT`` (one line) and ``check(world)``."""
