"""Whether an outcome is what a case has to give."""

from __future__ import annotations

from bench.gates_cases import Case
from bench.gates_run import Outcome


def faults(case: Case, seen: Outcome) -> list[str]:
    """What the gate got wrong of a case; empty when it judged right and left nothing."""
    right = " or ".join(case.verdicts)
    wrong = [f"verdict {one}, expected {right}" for one in seen.verdicts if one not in case.verdicts]
    if case.root and seen.root != case.root:
        wrong.append(f"root cause {seen.root}, expected {case.root}")
    if not case.root and seen.root:
        wrong.append(f"root cause {seen.root}, where the log has none")
    if case.why and case.why not in seen.summary:
        wrong.append(f"it says {seen.summary[:100]!r}, expected {case.why!r}")
    wrong += [f"check {one} did not pass" for one in case.passed if one not in seen.passed]
    wrong += [f"left running: {one}" for one in seen.left]
    return wrong + [f"evidence: {one}" for one in seen.evidence]
