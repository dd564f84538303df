"""What was checked of a server, with its outcome; and the verdict over all of it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from npu_upgrade.ground.verdict import Verdict

PASS, FAIL, INCONCLUSIVE, SKIPPED = "PASS", "FAIL", "INCONCLUSIVE", "SKIPPED"


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check. ``why`` is a sentence when it did not pass; ``prompt`` and ``answer`` are for people."""

    name: str
    state: str
    why: str = ""
    prompt: str = ""
    answer: str = ""


def passed(name: str, prompt: str = "", answer: str = "", why: str = "") -> Check:
    return Check(name, PASS, why, prompt, answer)


def failed(name: str, why: str, prompt: str = "", answer: str = "") -> Check:
    return Check(name, FAIL, why, prompt, answer)


def unsure(name: str, why: str, prompt: str = "", answer: str = "") -> Check:
    return Check(name, INCONCLUSIVE, why, prompt, answer)


def skipped(name: str, why: str) -> Check:
    return Check(name, SKIPPED, why)


def verdict(checks: Iterable[Check]) -> Verdict:
    """FAIL before INCONCLUSIVE before PASS; nothing that passed is INCONCLUSIVE."""
    states = [one.state for one in checks]
    if FAIL in states:
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE if INCONCLUSIVE in states or PASS not in states else Verdict.PASS


def first_bad(checks: Iterable[Check]) -> Check | None:
    """The first failed check, else the first inconclusive one."""
    every = list(checks)
    return next((one for state in (FAIL, INCONCLUSIVE) for one in every if one.state == state), None)
