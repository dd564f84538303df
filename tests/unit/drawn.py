"""How many examples a property test draws: all of them in ``make test-all``, a quarter in ``make test``."""

from __future__ import annotations

import os

from hypothesis.internal.conjecture import providers

# Hypothesis also draws the constants of the modules that are loaded: which tests ran before in the same
# process would decide on the examples.
providers._get_local_constants = lambda: providers._local_constants

ALL = "ALL_EXAMPLES"
_LESS = 4


def examples(most: int) -> int:
    """``most`` where all is to be tested, else a quarter of it."""
    return most if os.environ.get(ALL) else max(1, most // _LESS)
