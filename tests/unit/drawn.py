"""How many examples a property test draws: all of them in ``make test-all``, a quarter in ``make test``."""

from __future__ import annotations

import os

ALL = "ALL_EXAMPLES"
_LESS = 4


def examples(most: int) -> int:
    """``most`` where all is to be tested, else a quarter of it."""
    return most if os.environ.get(ALL) else max(1, most // _LESS)
