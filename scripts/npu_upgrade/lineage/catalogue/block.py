"""What the block catalogue is made of: blocks, the methods they stand in, and the versions read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from npu_upgrade.lineage.downstream import Runner
from npu_upgrade.program.program import ClassSymbol, Program

WHOLE = ("own", "override")


@dataclass(frozen=True)
class Block:
    """Omni code at one place of a method, or a place where upstream's code is missing.

    ``id`` is a hash of the content, the name of the method included. ``kind`` is ``added``,
    ``changed`` (it stands for ``replaces`` statements of upstream's), ``deletion``,
    ``signature``, ``own`` (a whole method or class that upstream does not have) or
    ``override`` (a whole method that is no copy of upstream's). ``first`` and ``last`` are
    1-based lines of the file; for a deletion, ``first`` is the line before which upstream's
    code is missing. ``lines`` counts the source lines of its statements. ``marker`` is
    ``inside``, ``outside``, ``partly``, ``inexpressible`` (a marker cannot say it) or
    ``unneeded`` (the method's own name says it). ``unmarked`` is how many of its lines stand
    outside. ``starts`` and ``made_of`` are derived from its names; ``purpose`` is a person's
    sentence, and ``earlier`` tells that it was written for an earlier form of the block.
    """

    id: str
    kind: str
    first: int
    last: int
    statements: int
    lines: int
    replaces: int
    marker: str
    unmarked: int
    starts: str
    made_of: str
    needs: tuple[str, ...] = ()
    purpose: str = ""
    earlier: bool = False


@dataclass(frozen=True)
class Method:
    """A method, function or class of a file with its blocks, in the order of their lines.

    ``upstream`` names what it was compared with and ``version`` its version, both empty when
    there is nothing to compare with. ``first`` and ``last`` are its lines.
    """

    name: str
    first: int
    last: int
    upstream: str
    version: str
    copied: bool
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Listing:
    """The blocks of one file; ``side`` is npu or gpu."""

    side: str
    path: str
    methods: tuple[Method, ...]


@dataclass(frozen=True)
class Catalogue:
    """All listings and the runners' ancestries, with the specs they were read from by role."""

    versions: dict[str, str]
    files: tuple[Listing, ...] = field(default=())
    ancestries: tuple[Ancestry, ...] = field(default=())

    def blocks(self) -> list[tuple[Listing, Method, Block]]:
        """Every block with where it stands."""
        return [
            (file, method, block) for file in self.files for method in file.methods for block in method.blocks
        ]

    def counts(self, side: str) -> dict[str, int]:
        """Blocks, lines, and lines outside markers in the copied methods of one side."""
        every = [(method, block) for file, method, block in self.blocks() if file.side == side]
        coded = [
            block for method, block in every if method.copied and block.kind not in ("deletion", "signature")
        ]
        return {
            "blocks": len(every),
            "whole methods": sum(block.kind in WHOLE for _, block in every),
            "lines in copied methods": sum(block.lines for block in coded),
            "of these outside markers": sum(block.unmarked for block in coded),
            "deletions": sum(block.kind == "deletion" for _, block in every),
            "deleted statements": sum(block.replaces for _, block in every if block.kind == "deletion"),
            "without a purpose": sum(not block.purpose for _, block in every),
        }

    def as_json(self) -> dict[str, Any]:
        sides = sorted({file.side for file in self.files})
        counts = {side: self.counts(side) for side in sides}
        return {"versions": self.versions, "counts": counts, "files": [asdict(file) for file in self.files]}


@dataclass(frozen=True)
class Ancestry:
    """A class with its bases in order; ``mro`` is the order in which its methods are looked up, itself first.

    Bases outside the three projects are left out.
    """

    name: str
    path: str
    bases: tuple[Ancestry, ...]
    mro: tuple[str, ...]


def runner_ancestries(program: Program, runners: Sequence[Runner]) -> tuple[Ancestry, ...]:
    """The ancestries of the NPU runners and of the GPU runners they mirror, those that are there."""
    named = [(runner.path, runner.class_name) for runner in runners]
    named += [(runner.gpu_path, runner.gpu_class) for runner in runners]
    found = [program.find_class(*one) for one in named]
    return tuple(_ancestry(cls) for cls in found if cls)


def _ancestry(cls: ClassSymbol) -> Ancestry:
    bases = [base for base in cls.bases if isinstance(base, ClassSymbol)]
    return Ancestry(cls.name, cls.file.path, tuple(map(_ancestry, bases)), tuple(one.name for one in cls.mro))


def drawn(ancestry: Ancestry) -> list[str]:
    """The ancestry as a tree of text, a class to a line with its file; a class drawn before says so."""
    lines = list(_drawn(ancestry, "", "", set()))
    width = max(len(left) for left, _ in lines)
    return [f"{left:{width}}  {path}" for left, path in lines]


def _drawn(one: Ancestry, head: str, below: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    known = one.name in seen
    seen.add(one.name)
    yield head + one.name, "(above)" if known else one.path
    for base in () if known else one.bases:
        last = base is one.bases[-1]
        yield from _drawn(base, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "), seen)
