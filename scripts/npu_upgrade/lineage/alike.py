"""Units of upstream's that have lines in common with one of ours, wherever they are and however called.

Whole trees are looked at, so nothing is parsed here but the few files that hold a candidate.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from npu_upgrade.code.module import Unit
from npu_upgrade.sources.tree import SourceTree

_DEFINITION = re.compile(r"^([ \t]*)(async[ \t]+def|def|class)[ \t]+(\w+)", re.MULTILINE)
SHARE = 0.25
"""From this share of common lines on, statements are compared."""

SHARE_OF_OTHERS = 0.5
"""The same of functions with another name."""

MOST = 3
_COMMON = 400  # what stands in more units than this tells nothing
_SHORTEST = 5
_DEEPEST = 4  # columns: a function further in is part of another one


@dataclass(frozen=True, slots=True)
class Candidate:
    """A unit of upstream's, and the file it is in."""

    path: str
    unit: Unit


class _Place(NamedTuple):
    """A definition of upstream's: its first line (0-based), and how many lines of it tell something."""

    path: str
    line: int
    size: int


class Alike:
    """The definitions of some trees that have lines in common with those of ours.

    ``ours`` are the units that are asked for; ``units`` gives the units of a file of the trees.
    """

    def __init__(
        self,
        trees: Mapping[str, SourceTree],
        ours: Iterable[Unit],
        units: Callable[[str], Mapping[str, Unit]],
    ) -> None:
        self._units = units
        self._places: list[_Place] = []
        self._functions: dict[str, list[int]] = {}  # line -> places
        self._named: dict[str, dict[str, list[int]]] = {}  # name -> line -> places
        for unit in ours:
            self._named[unit.name] = {}
            self._functions |= {line: [] for line in lines_of(unit.source.split("\n"))}
        for package, tree in trees.items():
            for path in tree.list(package):
                if path.endswith(".py"):
                    self._learn(path, tree.read(path))

    def candidates(self, unit: Unit) -> list[Candidate]:
        """The units with the most lines in common: first those of that name, then functions of any."""
        own = lines_of(unit.source.split("\n"))
        found = self._most(own, self._named.get(unit.name, {}), SHARE)
        found += self._most(own, self._functions, SHARE_OF_OTHERS)
        places = (self._places[place] for place in dict.fromkeys(found))
        return list(filter(None, (self._candidate(place.path, place.line) for place in places)))

    def _most(self, own: set[str], lines: Mapping[str, list[int]], share: float) -> list[int]:
        """The places with most of our lines for their size, the best first."""
        counted: Counter[int] = Counter()
        for line in own:
            places = lines.get(line, ())
            if len(places) <= _COMMON:
                counted.update(places)
        alike = [
            (count / (len(own) + self._places[place].size), -place)
            for place, count in counted.items()
            if count >= share * len(own)
        ]
        return [-place for _, place in sorted(alike, reverse=True)[:MOST]]

    def _learn(self, path: str, text: str) -> None:
        lines = text.split("\n")
        starts = itertools.accumulate((len(line) + 1 for line in lines), initial=0)
        rows = {start: row for row, start in enumerate(starts)}
        for match in _DEFINITION.finditer(text):
            start = rows[match.start()]
            named, is_class = self._named.get(match[3]), match[2] == "class"
            if named is None and (is_class or len(match[1].expandtabs()) > _DEEPEST):
                continue
            told = lines_of(_block(lines, start, len(match[1].expandtabs())))
            for line in told:
                if named is not None:
                    named.setdefault(line, []).append(len(self._places))
                if line in self._functions and not is_class:
                    self._functions[line].append(len(self._places))
            self._places.append(_Place(path, start, len(told)))

    def _candidate(self, path: str, line: int) -> Candidate | None:
        units = self._units(path).values()
        for unit in (unit for unit in units if unit.start <= line < unit.end):
            decorators = unit.source.split("\n")[: line - unit.start]
            if not any(map(_DEFINITION.match, decorators)):  # a function inside another one is no unit
                return Candidate(path, unit)
        return None


def lines_of(lines: Iterable[str]) -> set[str]:
    """The lines that tell something, without their indents."""
    stripped = (line.strip() for line in lines)
    return {line for line in stripped if len(line) >= _SHORTEST and line[0] not in "#\"'@"}


def _block(lines: list[str], start: int, indent: int) -> Iterator[str]:
    """The lines of a definition, by their indents."""
    yield lines[start]
    for line in lines[start + 1 :]:
        text = line.lstrip()
        if text and len(line) - len(text) <= indent and text[0] not in ")]}#":
            return
        yield line
