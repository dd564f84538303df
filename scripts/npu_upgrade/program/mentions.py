"""Where names stand in the text of all trees: a wide look, for the few names that are in doubt."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.program.program import ClassSymbol, Program

_ASKED = re.compile(r"hasattr\(\w+, '(\w+)'\)")
# Names that tell nothing about an object.
_ANYTHING = {"obj", "cls", "instance", "target", "owner", "this", "parent", "new", "copy", "result"}


@dataclass(frozen=True)
class Mention:
    """One line that holds a name; ``line`` is 1-based."""

    path: str
    line: int
    text: str


class Mentions:
    """The lines of all Python files of the packages that hold a name, looked for as far as somebody asks."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._found: dict[str, tuple[list[Mention], Iterator[Mention]]] = {}

    def of(self, name: str) -> Iterator[Mention]:
        """The lines that hold ``name`` as a whole word."""
        known, left = self._found.setdefault(name, ([], self._search(name)))
        for number in itertools.count():
            if number == len(known):
                if (mention := next(left, None)) is None:
                    return
                known.append(mention)
            yield known[number]

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

    def is_defined(self, name: str) -> bool:
        """Whether some line defines a function of that name, or gives the name a value or a type."""
        made = re.compile(rf"\bdef {name}\b|\b{name}\s*[:=](?!=)")
        return any(made.search(mention.text) for mention in self.of(name))

    def is_asked_in_vain(self, condition: str) -> bool:
        """Whether ``condition`` is ``hasattr(x, 'name')`` of a name that nothing defines or sets."""
        asked = _ASKED.fullmatch(condition)
        if asked is None or self.is_defined(asked[1]):
            return False
        return not any("setattr(" in mention.text for mention in self.of(asked[1]))

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

    def _search(self, name: str) -> Iterator[Mention]:
        word = re.compile(rf"\b{name}\b")
        for package in self.program.trees:
            for path in self.program.words(package).of(name):
                text = self.program.text(path) if path.startswith(f"{package}/") else ""
                place, line, last = 0, 1, 0
                for match in word.finditer(text):
                    line += text.count("\n", place, match.start())
                    place = match.start()
                    if line != last:
                        last, end = line, text.find("\n", place)
                        start = text.rfind("\n", 0, place) + 1
                        yield Mention(path, line, text[start:] if end < 0 else text[start:end])


def _kind(target: str) -> str:
    """The last word of what something is called: ``runner`` of ``self.model_runner``."""
    return _words(_last(target))[-1]


def _last(target: str) -> str:
    """The last name in an expression."""
    return (re.findall(r"\w+", target) or [""])[-1]


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]*[a-z0-9]+|[A-Z]+", name)] or [name]
