"""What a replayed merge is measured by, against what the maintainers did by hand.

All figures are counts of statements by their canonical text; layout, comments and depth
do not count. See docs/source/benchmarks.md for what each figure means.
"""

from __future__ import annotations

import difflib
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bench.shared import Tally
from npu_upgrade.code.conflict_text import scan
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.threeway.align import weight
from npu_upgrade.threeway.pieces import Flag, MergedMethod

FEWEST = 20
"""Below so many attributable statements a ratio says nothing."""


@dataclass
class Score(Tally):
    """Counts over some methods; ``cases`` names what fell short, for the page."""

    methods: int = 0
    clean: int = 0
    hunks: int = 0
    attributable: int = 0
    reproduced: int = 0
    ceiling: int = 0
    readopted: int = 0
    not_in_human: int = 0
    garbage: int = 0
    unjudged: int = 0
    duplicated: int = 0
    automatic: int = 0
    flagged: int = 0
    git_clean: int = 0
    git_hunks: int = 0
    git_reproduced: int = 0
    cases: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Texts:
    """The source of one method in all versions that matter; ``gpu`` and ``upstream`` are several.

    ``used`` is the base that was merged from, where that is nearer to ours than ``base``.

    ``upstream`` are the versions from the base to just after the target: what a person who
    copied between two releases can have copied from.
    """

    name: str
    base: str
    ours: str
    theirs: str
    human: str
    gpu: tuple[str, ...]
    upstream: tuple[str, ...]
    used: str = ""


def score_method(texts: Texts, merged: MergedMethod) -> Score:
    """Measure one merged method."""
    ours, theirs, human, base = (keys(t) for t in (texts.ours, texts.theirs, texts.human, texts.base))
    outside = Counter(p.key for p in merged.pieces if isinstance(p, Statement) and p.key != END)
    gpu = union(texts.gpu)
    added = (human - ours) & (union(texts.upstream) | theirs)
    used = keys(texts.used) if texts.used else base
    readopted = added & (used - ours) & theirs  # upstream did not change it: no merge can tell
    added -= readopted
    dropped = (ours - human) & (base - theirs)
    strange = {k: n for k, n in (outside - human).items() if not ours[k] and not theirs[k] and not gpu[k]}
    unjudged = {k: n for k, n in strange.items() if _left_alone(k, ours - outside, human)}
    strange = {k: n for k, n in strange.items() if k not in unjudged}
    most = ours | theirs | human
    twice = {k: n - most[k] for k, n in outside.items() if n > most[k] and most[k] and weight(k) > 2}
    git_text, git_hunks = git_merge(texts.base, texts.ours, texts.theirs)
    git = keys(git_text)
    conflicts = len(merged.conflicts)
    cases = [f"{texts.name}: conflict: {c.reason}" for c in merged.conflicts]
    cases += [f"{texts.name}: in no source: {k[:90]}" for k in strange]
    cases += [f"{texts.name}: twice: {k[:90]}" for k in twice]
    missed = (added - outside) + (dropped - (ours - outside))
    cases += [f"{texts.name}: not reproduced: {k[:90]}" for k in missed if (added | dropped)[k]][:8]
    return Score(
        methods=1,
        clean=not conflicts,
        hunks=conflicts,
        attributable=total(added) + total(dropped),
        reproduced=total(added & outside) + total(dropped & (ours - outside)),
        readopted=total(readopted),
        ceiling=total(added & theirs) + total(dropped & (ours - theirs)),
        not_in_human=total(outside - human),
        garbage=sum(strange.values()),
        unjudged=sum(unjudged.values()),
        duplicated=sum(twice.values()),
        automatic=merged.automatic,
        flagged=sum(map(flagged_statements, merged.flags)),
        git_clean=not git_hunks,
        git_hunks=git_hunks,
        git_reproduced=total(added & git) + total(dropped & (ours - git)),
        cases=cases,
    )


def _left_alone(key: str, replaced: Counter[str], human: Counter[str]) -> bool:
    """Whether the person left the statement of ours as it was that a combined one stands for."""
    nearest = difflib.get_close_matches(key, list(replaced), 1, 0.5)
    return bool(nearest) and human[nearest[0]] > 0


def keys(source: str) -> Counter[str]:
    """The statements of a text as a multiset; lines where it cannot be read as Python."""
    try:
        return Counter(s.key for s in split_statements(source) if s.key != END)
    except SyntaxError:
        return Counter(line.strip() for line in source.split("\n") if line.strip())


def union(sources: Iterable[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for source in sources:
        found |= keys(source)
    return found


def total(counter: Counter[str]) -> int:
    return sum(counter.values())


def flagged_statements(flag: Flag) -> int:
    """How many statements a flag is about: what upstream has there and the base had not."""
    return max(1, total(keys(flag.theirs) - keys(flag.base)))


def git_merge(base: str, ours: str, theirs: str) -> tuple[str, int]:
    """``git merge-file --diff3`` on the same texts: what it decided, and its conflict hunks."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("ours", "base", "theirs")]
        for path, text in zip(paths, (ours, base, theirs), strict=True):
            path.write_text(text + "\n", encoding="utf-8")
        command = ["git", "merge-file", "-p", "--diff3", *map(str, paths)]
        out = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    items = scan(out)
    kept = [item for item in items if isinstance(item, str)]
    return "\n".join(kept), len(items) - len(kept)
