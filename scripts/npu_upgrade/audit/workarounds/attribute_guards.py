"""``hasattr`` and ``getattr`` with a default, and whether the given trees leave them anything to decide."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import walk
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.program.program import ClassSymbol, File, Method, ModuleSymbol
from npu_upgrade.sources.tree import SourceTree


@dataclass(frozen=True)
class Guard:
    """One question: ``owner`` is the expression asked, ``name`` the attribute."""

    node: ast.Call
    owner: ast.expr
    name: str

    @property
    def text(self) -> str:
        return ast.unparse(self.node)


def guards_in(node: ast.AST) -> Iterator[Guard]:
    """All questions below a node about attributes named in the source."""
    for call in walk(node):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            continue
        if (call.func.id, len(call.args)) not in (("hasattr", 2), ("getattr", 3)):
            continue
        name = call.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield Guard(call, call.args[0], name.value)


def always_there(guard: Guard, method: Method, heirs: Sequence[ClassSymbol]) -> Method | None:
    """The method that makes a question to ``self`` pointless, for every class it can be asked of.

    It is the method asked for, or an ``__init__`` that sets the attribute whatever happens.
    """
    first = next((arg.arg for arg in method.node.args.args), None)
    if not (isinstance(guard.owner, ast.Name) and guard.owner.id == first) or method.name == "__init__":
        return None
    found = [_provider(heir, guard.name) for heir in heirs]
    return found[0] if found and all(found) else None


def names_nothing(names: Iterable[str], trees: Mapping[str, SourceTree]) -> set[str]:
    """Those of the names that no file has but as the text of a question; ``trees`` by their package."""
    left = set(names)
    for package, tree in trees.items():
        for path in tree.list(package):
            if left and path.endswith(".py"):
                text = _text(tree, path)
                left -= {name for name in left if name in text and _mentions(text, name)}
    return left


def in_module(guard: Guard, file: File) -> ModuleSymbol | None:
    """The module of the trees that is asked for a name it certainly has."""
    if not isinstance(guard.owner, ast.Name) or guard.owner.id not in file.imports:
        return None
    owner = file.resolve(guard.owner.id)
    if not isinstance(owner, ModuleSymbol):
        return None
    module = file.program.module(owner.name)
    defined = module and guard.name in {*module.classes, *module.functions, *module.values}
    return owner if defined else None


def _provider(cls: ClassSymbol, name: str) -> Method | None:
    found = cls.lookup(name)
    if found:
        return found
    for owner in cls.mro:
        init = owner.methods.get("__init__")
        if init and _sets(init.node, name):
            return init
    return None


def _sets(init: Function, name: str) -> bool:
    """Whether an ``__init__`` sets the attribute on its way through, outside all conditions."""
    first = next((arg.arg for arg in init.args.args), None)
    for node in init.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.AnnAssign) and node.value is None:
            continue
        for target in targets:
            plain = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
            if plain and target.attr == name and target.value.id == first:
                return True
    return False


def _text(tree: SourceTree, path: str) -> str:
    try:
        return tree.read(path)
    except BadInput:  # not UTF-8, so it is no source of ours
        return ""


def _mentions(text: str, name: str) -> bool:
    """Whether a text has a name but as what is asked for."""
    count = text.count(name)
    if count > text.count(f"'{name}'") + text.count(f'"{name}"'):
        return True
    asked = re.compile(rf"(?:has|get)attr\([^()]*(?:\([^()]*\))?[^()]*,\s*[\"']{name}[\"']")
    return count > len(asked.findall(text))
