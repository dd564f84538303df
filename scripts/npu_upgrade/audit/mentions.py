"""Where names stand in the text of all trees: a wide look, for the few names that are in doubt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from npu_upgrade.audit.program import File, Program
from npu_upgrade.errors import BadInput


@dataclass(frozen=True)
class Mention:
    """One line that holds a name; ``line`` is 1-based."""

    path: str
    line: int
    text: str


class Mentions:
    """The lines of all Python files of the packages that hold one of ``names``."""

    def __init__(self, program: Program, names: Iterable[str]) -> None:
        self.program = program
        self._found: dict[str, list[Mention]] = {name: [] for name in names}
        if self._found:
            self._search()

    def of(self, name: str) -> list[Mention]:
        """The lines that hold ``name`` as a whole word."""
        return self._found[name]

    def files(self, name: str) -> Iterator[File]:
        """The files with such a line."""
        for path in dict.fromkeys(mention.path for mention in self.of(name)):
            if file := self.program.file(path):
                yield file

    def is_set_elsewhere(self, name: str) -> bool:
        """Whether something assigns the attribute on another object than ``self``, or by ``setattr``."""
        stored = re.compile(
            rf"(?<!\bself)\.{name}\s*(?::[^=]+|,[^=]*)?=(?!=)|setattr\(.*[\"']{name}[\"']|^\s*[\"']{name}[\"'],?\s*$"
        )
        return any(stored.search(mention.text) for mention in self.of(name))

    def _search(self) -> None:
        one_of = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(self._found))) + r")\b")
        for package, tree in self.program.trees.items():
            for path in tree.list(package):
                if path.endswith(".py"):
                    self._search_file(path, _text(self.program, path), one_of)

    def _search_file(self, path: str, text: str, one_of: re.Pattern[str]) -> None:
        if not any(name in text for name in self._found):
            return
        lines = text.split("\n")
        place, line = 0, 1
        for match in one_of.finditer(text):
            line += text.count("\n", place, match.start())
            place = match.start()
            mention = Mention(path, line, lines[line - 1])
            found = self._found[match.group()]
            if not found or found[-1] != mention:
                found.append(mention)


def _text(program: Program, path: str) -> str:
    try:
        return program.trees[path.partition("/")[0]].read(path)
    except BadInput:
        return ""
