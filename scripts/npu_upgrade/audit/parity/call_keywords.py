"""The calls of a function by what they call, with the keywords they pass."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import dotted, string, walk
from npu_upgrade.lineage.dialect import KEYWORDS, NAMES
from npu_upgrade.program.program import ClassSymbol, File


@dataclass(frozen=True)
class Calls:
    """All calls of one thing in some functions; ``tables`` are the keys of the dicts those functions make."""

    calls: tuple[ast.Call, ...]
    tables: Mapping[str, Mapping[str, ast.expr]]

    @property
    def keywords(self) -> dict[str, ast.expr]:
        """Keyword -> a value it is given; the keys of a dict of the function after ``**`` too."""
        found: dict[str, ast.expr] = {}
        for keyword in (keyword for call in self.calls for keyword in call.keywords):
            if keyword.arg:
                found.setdefault(keyword.arg, keyword.value)
            elif isinstance(keyword.value, ast.Name):
                found = {**self.tables.get(keyword.value.id, {}), **found}
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
    for inner in walk(node):
        if isinstance(inner, ast.Call) and (name := callee(inner)):
            found.setdefault(name, []).append(inner)
    tables = _tables(node)
    return {name: Calls(tuple(calls), tables) for name, calls in found.items()}


def _tables(node: Function) -> dict[str, dict[str, ast.expr]]:
    """The string keys that each dict of a function is made with or given."""
    found: dict[str, dict[str, ast.expr]] = {}
    for inner in walk(node):
        if not isinstance(inner, (ast.Assign, ast.AnnAssign)) or inner.value is None:
            continue
        for target in inner.targets if isinstance(inner, ast.Assign) else [inner.target]:
            name, keys = _filled(target, inner.value)
            if name:
                found.setdefault(name, {}).update(keys)
    return found


def _filled(target: ast.expr, value: ast.expr) -> tuple[str, dict[str, ast.expr]]:
    """The dict that an assignment makes or fills, and the keys it gets."""
    if isinstance(target, ast.Name) and isinstance(value, ast.Dict):
        pairs = zip(map(string, value.keys), value.values, strict=True)
        return target.id, {key: item for key, item in pairs if key}
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and string(target.slice):
        return target.value.id, {string(target.slice): value}
    return "", {}


def callee(call: ast.Call) -> str:
    """The dotted text of what is called; ``super().f`` is ``self.f``.

    ``replace`` takes the fields of whatever it is given, so what that is belongs to the callee.
    """
    func = call.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call):
        return f"self.{func.attr}" if dotted(func.value.func) == "super" else ""
    name = dotted(func)
    if name.rpartition(".")[2] == "replace" and call.args:
        return f"{name}({ast.unparse(call.args[0])})"
    return NAMES.get(name, name)


def renamed(name: str) -> dict[str, str]:
    """GPU keyword -> NPU keyword of a callee, by its NPU name."""
    original = next((gpu for gpu, npu in NAMES.items() if npu == name), name)
    return KEYWORDS.get(original, {})


def merged(nodes: Iterable[Function], name: str) -> Calls:
    """The calls of one thing in several functions."""
    found = [calls for node in nodes if (calls := calls_in(node).get(name))]
    tables = {key: table for calls in found for key, table in calls.tables.items()}
    return Calls(tuple(call for calls in found for call in calls.calls), tables)


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
