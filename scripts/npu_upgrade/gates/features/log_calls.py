"""What a source logs: the calls of its loggers, and patterns that find the lines they write."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.code.walk import walk
from npu_upgrade.gates.features.package import Package, Place

_LEVELS = ("debug", "info", "warning", "error")
_PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[-+ #0]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]|%%")
_HOLE = "\0"
_SHORTEST = 12  # characters of fixed text; less would be found anywhere


@dataclass(frozen=True)
class LogCall:
    """One call of a logger; ``text`` has a NUL where a value goes."""

    place: Place
    level: str
    text: str

    @property
    def pattern(self) -> str:
        """A regular expression for the line it writes; further lines of the message are left out."""
        return ".*".join(re.escape(part) for part in self.text.strip().split("\n")[0].split(_HOLE))

    @property
    def shown(self) -> str:
        return self.text.replace(_HOLE, "…").strip().split("\n")[0]

    @property
    def is_telling(self) -> bool:
        """Whether enough of the line is fixed to be found by it."""
        return len(self.text.strip().split("\n")[0].replace(_HOLE, "")) >= _SHORTEST


def log_calls(package: Package, *words: str, below: str = "") -> Iterator[LogCall]:
    """The log calls of the files that hold one of ``words``."""
    for path, _text in package.holding(*words, below=below):
        tree = package.parsed(path)
        for node in walk(tree) if tree else ():
            if isinstance(node, ast.Call) and (call := log_call(node, path)) and call.is_telling:
                yield call


def log_call(node: ast.AST, path: str) -> LogCall | None:
    """``logger.info("...", ...)`` and its kin, with a text that stands there."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return None
    level = node.func.attr.removesuffix("_once")
    if level not in _LEVELS or not ast.unparse(node.func.value).lower().endswith(
        ("logger", "log", "logging")
    ):
        return None
    text = _template(node.args[0])
    if text is None:
        return None
    if len(node.args) > 1:
        text = _PLACEHOLDER.sub(lambda found: "%" if found.group() == "%%" else _HOLE, text)
    return LogCall(Place(path, node.lineno), level, text)


def _template(node: ast.expr) -> str | None:
    """The text of a constant, an f-string or a sum of them."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) or _HOLE for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _template(node.left), _template(node.right)
        return (left or _HOLE) + (right or _HOLE) if left or right else None
    return None
