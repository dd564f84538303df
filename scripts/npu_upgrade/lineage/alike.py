"""Units of upstream's with the name of one of ours, wherever they are, that have lines in common with it.

Whole trees are looked at, so nothing is parsed here but the few files that hold a candidate.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from npu_upgrade.code.module import Unit
from npu_upgrade.sources.tree import SourceTree

_DEFINITION = re.compile(r"^([ \t]*)(?:async[ \t]+def|def|class)[ \t]+(\w+)", re.MULTILINE)
SHARE = 0.25
"""From this share of common lines on, statements are compared."""

MOST = 3
_COMMON = 400  # what stands in more units than this tells nothing
_SHORTEST = 5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A unit of upstream's, and the file it is in."""

    path: str
    unit: Unit


class Alike:
    """The definitions of some trees that bear one of the names asked for.

    ``units`` gives the units of a file of the trees.
    """

    def __init__(
        self,
        trees: Mapping[str, SourceTree],
        names: Iterable[str],
        units: Callable[[str], Mapping[str, Unit]],
    ) -> None:
        self._units = units
        self._names = set(names)
        self._places: dict[str, list[tuple[str, int, int]]] = {}  # name -> (path, line, number of lines)
        self._lines: dict[str, dict[str, list[int]]] = {}  # name -> line -> places
        for package, tree in trees.items():
            for path in tree.list(package):
                if path.endswith(".py"):
                    self._learn(path, tree.read(path))

    def candidates(self, unit: Unit) -> list[Candidate]:
        """The units of that name with the most lines in common, the best first."""
        own = lines_of(unit.source.split("\n"))
        lines = self._lines.get(unit.name, {})
        counted: Counter[int] = Counter()
        for line in own:
            holding = lines.get(line, ())
            if len(holding) <= _COMMON:
                counted.update(holding)
        places = self._places.get(unit.name, [])
        alike = [
            (count / (len(own) + places[place][2]), -place)
            for place, count in counted.items()
            if count >= SHARE * len(own)
        ]
        best = (places[-place] for _, place in sorted(alike, reverse=True)[:MOST])
        return list(filter(None, (self._candidate(path, line) for path, line, _ in best)))

    def _learn(self, path: str, text: str) -> None:
        found = [match for match in _DEFINITION.finditer(text) if match[2] in self._names]
        lines = text.split("\n") if found else []
        for match in found:
            start = text.count("\n", 0, match.start())
            places = self._places.setdefault(match[2], [])
            index = self._lines.setdefault(match[2], {})
            told = lines_of(_block(lines, start, len(match[1].expandtabs())))
            for line in told:
                index.setdefault(line, []).append(len(places))
            places.append((path, start, len(told)))

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
