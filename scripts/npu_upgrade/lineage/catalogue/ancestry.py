"""Who inherits from whom among the runners, read from the trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.lineage.downstream import Runner
from npu_upgrade.program.program import ClassSymbol, Program


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
