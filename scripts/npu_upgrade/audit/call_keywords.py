"""The calls of a function by what they call, with the keywords they pass."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from npu_upgrade.audit.facts import dotted
from npu_upgrade.audit.program import ClassSymbol, File
from npu_upgrade.port.dialect import KEYWORDS, NAMES
from npu_upgrade.upgrade.signatures import Function


@dataclass(frozen=True)
class Calls:
    """All calls of one thing in some functions."""

    calls: tuple[ast.Call, ...]

    @property
    def keywords(self) -> dict[str, ast.expr]:
        """Keyword -> a value it is given; the keys of dicts written out after ``**`` too."""
        found: dict[str, ast.expr] = {}
        for call in self.calls:
            for keyword in call.keywords:
                if keyword.arg:
                    found.setdefault(keyword.arg, keyword.value)
        return found

    @property
    def spread(self) -> set[str]:
        """What is passed after ``*`` or ``**``."""
        stars = [arg.value for call in self.calls for arg in call.args if isinstance(arg, ast.Starred)]
        doubles = [keyword.value for call in self.calls for keyword in call.keywords if not keyword.arg]
        return {ast.unparse(value) for value in stars + doubles}

    @property
    def positional(self) -> list[ast.expr]:
        return max((call.args for call in self.calls), key=len, default=[])


@functools.lru_cache(maxsize=16384)  # nodes are their own keys
def calls_in(node: Function) -> dict[str, Calls]:
    """The calls in a function by the dotted text of what they call, in the words of the NPU side."""
    found: dict[str, list[ast.Call]] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and (name := callee(inner)):
            found.setdefault(name, []).append(inner)
    return {name: Calls(tuple(calls)) for name, calls in found.items()}


def callee(call: ast.Call) -> str:
    """The dotted text of what is called; ``super().f`` is ``self.f``."""
    func = call.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call):
        return f"self.{func.attr}" if dotted(func.value.func) == "super" else ""
    name = dotted(func)
    return NAMES.get(name, name)


def renamed(name: str) -> dict[str, str]:
    """GPU keyword -> NPU keyword of a callee, by its NPU name."""
    original = next((gpu for gpu, npu in NAMES.items() if npu == name), name)
    return KEYWORDS.get(original, {})


def merged(nodes: Iterable[Function], name: str) -> Calls:
    """The calls of one thing in several functions."""
    return Calls(tuple(call for node in nodes if (c := calls_in(node).get(name)) for call in c.calls))


def constructed(file: File, node: Function) -> dict[str, tuple[ClassSymbol, Calls]]:
    """The classes of the trees that a function makes objects of."""
    found = (
        (name, file.resolve(name), calls) for name, calls in calls_in(node).items() if "self" not in name
    )
    return {name: (symbol, calls) for name, symbol, calls in found if isinstance(symbol, ClassSymbol)}


def given_by_place(args: Sequence[ast.expr], parameters: Sequence[str]) -> set[str]:
    """The parameters that positional arguments fill; the arguments' own names where none are known."""
    if parameters:
        return set(parameters[: len(args)])
    return {arg.id if isinstance(arg, ast.Name) else getattr(arg, "attr", "") for arg in args}
