"""The errors a command may end with, each with the exit code it stands for."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence


class UpgradeError(Exception):
    """A command cannot go on, and says why in three parts.

    ``what`` was wrong, what was ``expected`` instead, and what to ``try_`` next;
    each is one sentence a maintainer (or an agent that sees nothing else) can act on.
    """

    exit_code = 2
    verdict = "USAGE"

    def __init__(self, what: str, *, expected: str, try_: str) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.try_ = try_

    def __str__(self) -> str:
        return f"{self.what}\n  expected: {self.expected}\n  try: {self.try_}"


class BadInput(UpgradeError):
    """Usage or input is wrong: the same call fails until the caller changes it (exit 2)."""


class ChangedError(BadInput):
    """The files are not those any more that a gate began to judge."""


class Blocked(UpgradeError):
    """Something outside is missing: network, tool, hardware, disk (exit 3).

    ``adding``: words with which the same command would go on, where some are known.
    """

    exit_code = 3
    verdict = "BLOCKED"

    def __init__(self, what: str, *, expected: str, try_: str, adding: Sequence[str] = ()) -> None:
        super().__init__(what, expected=expected, try_=try_)
        self.adding = adding


def report(error: UpgradeError, *, as_text: bool) -> int:
    """Print an error, as JSON on stdout and for whoever watches stderr; return its exit code."""
    if not as_text:
        fields = {
            "verdict": error.verdict,
            "error": error.what,
            "expected": error.expected,
            "try": error.try_,
        }
        print(json.dumps(fields, indent=1, ensure_ascii=False))
    if as_text or sys.stderr.isatty():
        print(f"error: {error}", file=sys.stderr)
    return error.exit_code
