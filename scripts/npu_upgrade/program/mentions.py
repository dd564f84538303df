"""Where names stand in the text of all trees: a wide look, for the few names that are in doubt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from npu_upgrade.program.program import ClassSymbol, Program

# Names that tell nothing about an object.
_ANYTHING = {"obj", "cls", "instance", "target", "owner", "this", "parent", "new", "copy", "result"}


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

    def makers(self, name: str) -> Iterator[ClassSymbol]:
        """The classes in which ``name`` stands otherwise than in a read of ``.name``."""
        read = re.compile(rf"\.{name}\s*(?:[(\[.]|[=!]=)")
        lines: dict[str, list[int]] = {}
        for mention in self.of(name):
            if re.search(rf"\b{name}\b", read.sub("", mention.text)):
                lines.setdefault(mention.path, []).append(mention.line)
        for path, found in lines.items():
            file = self.program.file(path)
            for cls in file.classes.values() if file else ():
                if any(cls.node.lineno <= line <= (cls.node.end_lineno or 0) for line in found):
                    yield cls

    def is_set_on(self, name: str, cls: ClassSymbol, called: str = "") -> bool:
        """Whether something assigns the attribute on what may be an object of ``cls``.

        Judged by what that is called: as the value in question is, or ``runner.x = 1`` for a
        ModelRunner. A function with a ``self`` of its own may be put into any class.
        """
        kinds = {_words(base.name)[-1] for base in cls.mro} | _ANYTHING
        target = re.compile(rf"^\s*(?:[\w.\[\]]+\s*,\s*)*([\w.\[\]()]+)\.{name}\s*(?:,[^=(]*|:[^=]+)?=(?!=)")
        named = re.compile(rf"\bsetattr\(\s*([\w.\[\]()]+)\s*,\s*[\"']{name}[\"']")
        for mention in self.of(name):
            found = target.search(mention.text) or named.search(mention.text)
            if found and found[1] == "self":
                if self._outside_classes(mention):
                    return True
            elif found and (_kind(found[1]) in kinds or _last(found[1]) == called):
                return True
        return False

    def _outside_classes(self, mention: Mention) -> bool:
        file = self.program.file(mention.path)
        classes = file.classes.values() if file else ()
        spans = ((cls.node.lineno, cls.node.end_lineno or 0) for cls in classes)
        return not any(start <= mention.line <= end for start, end in spans)

    def _search(self) -> None:
        one_of = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(self._found))) + r")\b")
        for package in self.program.trees:
            paths = {path for name in self._found for path in self.program.holding(package, name)}
            for path in sorted(paths):
                self._search_file(path, self.program.text(path), one_of)

    def _search_file(self, path: str, text: str, one_of: re.Pattern[str]) -> None:
        lines = text.split("\n")
        place, line = 0, 1
        for match in one_of.finditer(text):
            line += text.count("\n", place, match.start())
            place = match.start()
            mention = Mention(path, line, lines[line - 1])
            found = self._found[match.group()]
            if not found or found[-1] != mention:
                found.append(mention)


def _kind(target: str) -> str:
    """The last word of what something is called: ``runner`` of ``self.model_runner``."""
    return _words(_last(target))[-1]


def _last(target: str) -> str:
    """The last name in an expression."""
    return (re.findall(r"\w+", target) or [""])[-1]


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]*[a-z0-9]+|[A-Z]+", name)] or [name]
