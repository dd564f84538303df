"""Names in statements, for sentences that hold no code: what is set, called, tested, read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from npu_upgrade.code.statements import nodes_of
from npu_upgrade.code.walk import dotted
from npu_upgrade.ground.tables import shortened

_MOST = 6
_WORDS = (
    (ast.If, "test of"),
    (ast.While, "loop while"),
    (ast.For, "loop over"),
    (ast.With, "context"),
    (ast.Return, "return of"),
    (ast.Raise, "raise of"),
    (ast.Assert, "assertion on"),
    (ast.Try, "try block"),
    (ast.FunctionDef, "function"),
    (ast.ClassDef, "class"),
    (ast.Import, "import of"),
    (ast.ImportFrom, "import of"),
)


def nodes(keys: Iterable[str]) -> Iterator[ast.AST]:
    """All nodes of some statements."""
    return (node for key in keys for node in nodes_of(key))


def parsed(key: str) -> ast.stmt | None:
    """The tree of one statement (see :mod:`npu_upgrade.code.statements`); None when it has none."""
    tree = next(iter(nodes_of(key)), None)
    if isinstance(tree, ast.Expression):  # of a decorator
        return ast.Expr(tree.body)
    return next(iter(tree.body), None) if isinstance(tree, ast.Module) else None


def called(keys: Sequence[str]) -> list[str]:
    """The dotted names that are called."""
    found = (dotted(node.func) for node in nodes(keys) if isinstance(node, ast.Call))
    return list(dict.fromkeys(name for name in found if name))


def stored(keys: Sequence[str]) -> list[str]:
    """The dotted names that are set."""
    found = (
        dotted(node)
        for node in nodes(keys)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)
    )
    return list(dict.fromkeys(name for name in found if name))


def starts_with(keys: Sequence[str]) -> str:
    """The first statement in a few words, by its sort and the names in it."""
    tree = parsed(keys[0]) if keys else None
    if tree is None:
        return ""
    if isinstance(tree, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return f"setting of {_list(stored(keys[:1])) or 'a part'}"
    if isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Call):
        return f"call of {dotted(tree.value.func) or 'a result'}"
    if isinstance(tree, (ast.FunctionDef, ast.ClassDef)):
        return f"{'class' if isinstance(tree, ast.ClassDef) else 'function'} {tree.name}"
    word = next((word for kind, word in _WORDS if isinstance(tree, kind)), "")
    names = (
        [alias.name for alias in tree.names]
        if isinstance(tree, (ast.Import, ast.ImportFrom))
        else _read(tree)
    )
    return f"{word} {_list(names[:3])}".strip() if word else type(tree).__name__.lower()


def made_of(keys: Sequence[str]) -> str:
    """What some statements do, by names alone: ``sets a, b; calls f; returns``."""
    trees = [tree for key in keys if (tree := parsed(key)) is not None]
    imports = [a.name for tree in trees if isinstance(tree, (ast.Import, ast.ImportFrom)) for a in tree.names]
    parts = {
        "imports": _list(imports),
        "sets": _list(stored(keys)),
        "calls": _list(called(keys)),
    }
    out = [f"{word} {names}" for word, names in parts.items() if names]
    for kind, word in (
        (ast.Return, "returns"),
        (ast.Raise, "raises"),
        (ast.For, "loops"),
        (ast.If, "branches"),
    ):
        if any(isinstance(tree, kind) for tree in trees):
            out.append(word)
    return "; ".join(out)


def _read(tree: ast.AST) -> list[str]:
    """The longest dotted names that a statement reads."""
    found = [dotted(node) for node in ast.walk(tree) if isinstance(node, (ast.Name, ast.Attribute))]
    names = list(dict.fromkeys(name for name in found if name))
    return [name for name in names if not any(other.startswith(f"{name}.") for other in names)]


def _list(names: Sequence[str]) -> str:
    return shortened((f"`{name}`" for name in names), _MOST)
