"""The keywords of a call, those unpacked from dict displays included: ``f(**{"a": 1}, **dict(b=2))``."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

# What a call asks before it gives a keyword that only some callees take.
_PROVIDED_FOR = re.compile(r"version|signature|param|hasattr|getattr|support|_has_|^has_", re.IGNORECASE)


@dataclass
class GivenNames:
    """``sure`` are given by every call, one name as often as it is given; ``maybe`` only by some.

    ``more``: there may be others, of which the source does not tell.
    """

    sure: list[str] = field(default_factory=list)
    maybe: list[str] = field(default_factory=list)
    more: bool = False

    def add(self, other: GivenNames) -> None:
        self.sure += other.sure
        self.maybe += other.maybe
        self.more |= other.more


def given_names(call: ast.Call) -> GivenNames:
    """The names that the call gives its callee."""
    found = GivenNames()
    for keyword in call.keywords:
        found.add(GivenNames([keyword.arg]) if keyword.arg else _unpacked(keyword.value))
    return found


def _unpacked(value: ast.expr) -> GivenNames:
    if isinstance(value, ast.Dict):
        return _display(value)
    if isinstance(value, ast.IfExp):
        return _either(value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
        found = given_names(value)
        found.sure = list(dict.fromkeys(found.sure))
        found.more |= bool(value.args)
        return found
    return GivenNames(more=True)


def _display(node: ast.Dict) -> GivenNames:
    """A key that stands twice counts once: the later value replaces the earlier."""
    found = GivenNames()
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            found.add(_unpacked(value))
        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.sure.append(key.value)
        else:
            found.more = True
    found.sure = list(dict.fromkeys(found.sure))
    return found


def _either(node: ast.IfExp) -> GivenNames:
    """What both branches give is sure; nothing is, where the condition asks what the callee takes."""
    if _PROVIDED_FOR.search(ast.unparse(node.test)):
        return GivenNames(more=True)
    one, other = _unpacked(node.body), _unpacked(node.orelse)
    sure = [name for name in one.sure if name in other.sure]
    names = dict.fromkeys([*one.sure, *other.sure, *one.maybe, *other.maybe])
    return GivenNames(sure, [name for name in names if name not in sure], one.more or other.more)
