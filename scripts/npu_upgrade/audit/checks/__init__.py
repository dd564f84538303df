"""The checks, one module each: ``NAME``, ``ABOUT`` (one line) and ``check(world)``."""
