"""What a replayed merge is measured by, against what the maintainers did by hand.

All figures are counts of statements by their canonical text; layout, comments and depth
do not count. See docs/source/benchmarks.md for what each figure means.
"""

from __future__ import annotations

import ast
import builtins
import enum
import functools
import keyword
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bench.shared import Tally
from npu_upgrade.code.conflict_text import scan
from npu_upgrade.code.sequences import overlap
from npu_upgrade.code.signatures import Function, signature
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.threeway.align import weight
from npu_upgrade.threeway.pieces import Flag, MergedMethod
from npu_upgrade.threeway.trees import parse_statement

FEWEST = 20
"""Below so many attributable statements a ratio says nothing."""

NEAR = 0.4
"""From this share of common words on, two statements are versions of one another."""

_NAME = re.compile(r"[A-Za-z_][\w.]*")
_WORD = re.compile(r"'[^']*'|[\w.]*\w|\*\*?|[<>=!]=|[^\w\s,()]")


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
    copied between two releases can have copied from. ``moved`` is what the person's file has in
    functions that ours does not have.
    """

    name: str
    base: str
    ours: str
    theirs: str
    human: str
    gpu: tuple[str, ...]
    upstream: tuple[str, ...]
    used: str = ""
    moved: str = ""


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
    sides = _Sides(used, ours - outside, theirs, human | keys(texts.moved))
    found = {k: sides.judge(k) for k in strange}
    unjudged = {k: n for k, n in strange.items() if found[k] is Person.KEPT_ONE}
    strange = {k: n for k, n in strange.items() if found[k] is Person.OTHER}
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


class Person(enum.Enum):
    """What a person did with a statement that the merge combined of two."""

    BOTH = "has what both sides changed in it, and maybe more of the own"
    KEPT_ONE = "has what one side changed in it, and nothing of the other side's"
    OTHER = "has another one"


@dataclass(frozen=True)
class _Sides:
    """The statements that a combined one can be made of and compared with.

    ``ours`` are those that the merge changed.
    """

    base: Counter[str]
    ours: Counter[str]
    theirs: Counter[str]
    human: Counter[str]

    def judge(self, key: str) -> Person:
        """What the person did with a combined statement, by the words that each side changed.

        A statement that is upstream's, where ours had another, is one of those that have to be reproduced:
        there it counts as missed.
        """
        found = [_nearest(key, side) for side in (self.ours, self.theirs, self.human)]
        if any(one in self.human for one in found[:2]):
            return Person.KEPT_ONE
        if None in found:
            return Person.OTHER
        merged, (ours, theirs, human) = _words(key), map(_words, filter(None, found))
        base = _words(_nearest(found[1] or "", self.base) or "")
        upstream, own = _Change.between(base, theirs, ours), _Change.between(base, ours, theirs)
        took, kept = upstream.is_in(human, merged), own.is_brought(human, merged)
        if took and (kept or _arguments_taken(key, *filter(None, found))):
            return Person.BOTH
        one = (kept and upstream.is_not_in(human, ours)) or (took and own.is_not_in(human, theirs))
        return Person.KEPT_ONE if one else Person.OTHER


@dataclass(frozen=True)
class _Change:
    """The words that one side brought into a statement, and those that it alone took out."""

    brought: Counter[str]
    gone: Counter[str]

    @classmethod
    def between(cls, base: Counter[str], side: Counter[str], other: Counter[str]) -> _Change:
        """What ``side`` changed and ``other`` did not."""
        gone = (base - side) & other
        return cls(side - base - (other - base), Counter({w: gone[w] for w in gone if not side[w]}) or gone)

    def is_in(self, words: Counter[str], merged: Counter[str]) -> bool:
        brought = all(words[word] >= min(merged[word], count) for word, count in self.brought.items())
        return brought and not any(words[word] for word in self.gone if not merged[word])

    def is_brought(self, words: Counter[str], merged: Counter[str]) -> bool:
        """The same, but for what it took out: a person may take that up again, and no merge can tell."""
        return _Change(self.brought, Counter()).is_in(words, merged)

    def is_not_in(self, words: Counter[str], other: Counter[str]) -> bool:
        """Whether ``words`` have nothing of it, by the names that are new to the ``other`` side."""
        new = [word for word in self.brought if not other[word]]
        telling = [word for word in new if _NAME.fullmatch(word) and not _is_common(word)] or [*self.brought]
        without = all(words[word] <= other[word] for word in telling)
        return without and all(words[word] for word in self.gone)


def _arguments_taken(key: str, ours: str, theirs: str, human: str) -> bool:
    """Whether the person makes the same call, but for arguments that are in neither side: own work since."""
    calls = [_call(text) for text in (key, ours, theirs, human)]
    (head, merged), (my_head, mine), (upstreams_head, upstream), (persons_head, persons) = calls
    if not (head and upstreams_head and head == my_head == persons_head):
        return False
    own = {name for name in persons if persons[name] not in (mine.get(name), upstream.get(name))}
    return merged.keys() == persons.keys() and all(merged[n] == persons[n] for n in merged.keys() - own)


def _call(key: str) -> tuple[list[str], dict[str, str]]:
    """Targets, callee and arguments by position of a call, and its arguments by name; empty for no call."""
    node = parse_statement(key)
    call = getattr(node, "value", None)
    if not isinstance(node, ast.Assign | ast.Expr | ast.Return) or not isinstance(call, ast.Call):
        return [], {}
    head = [*getattr(node, "targets", []), call.func, *call.args]
    return [*map(ast.unparse, head)], {one.arg or "**": ast.unparse(one.value) for one in call.keywords}


@functools.lru_cache(maxsize=16384)
def _words(key: str) -> Counter[str]:
    """The words of a statement; type hints do not count, for nothing reads them."""
    node = parse_statement(key)
    if isinstance(node, ast.AnnAssign) and node.value:
        key = f"{ast.unparse(node.target)} = {ast.unparse(node.value)}"
    return Counter(_WORD.findall(signature(node) if isinstance(node, Function) else key))


def _is_common(word: str) -> bool:
    return keyword.iskeyword(word) or hasattr(builtins, word)


def _nearest(key: str, side: Iterable[str]) -> str | None:
    """The statement that has most words in common with another one; None below a half."""
    words = _words(key)
    found = max(side, key=lambda other: overlap(words, _words(other)), default=None)
    return found if found is not None and overlap(words, _words(found)) >= NEAR else None


def kept_as(key: str, base: Iterable[str], result: Iterable[str]) -> str | None:
    """The version of a statement in ``result`` that has what ``key`` changed in the base's; None without one.

    That is all words that it brought, and none of those that it took out.
    """
    found = _nearest(key, result)
    if found is None:
        return None
    kind = type(parse_statement(key))
    of_the_kind = [other for other in base if type(parse_statement(other)) is kind]
    words, merged, before = map(_words, (key, found, _nearest(key, of_the_kind) or ""))
    took_out = [word for word in before if not words[word]]
    return None if words - before - merged or any(merged[word] for word in took_out) else found


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
