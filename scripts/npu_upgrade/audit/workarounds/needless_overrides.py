"""Overrides and copies that do what is there without them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.workarounds.needless import needless, place
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import plain_text
from npu_upgrade.code.statements import END, split_statements
from npu_upgrade.code.walk import walk
from npu_upgrade.program.program import ClassSymbol, File, Method


def needless_overrides(world: World) -> Iterator[Finding]:
    """Overrides equal to what they override, those that only pass on, and copies equal to upstream's."""
    for cls in world.classes:
        yield from _equal_overrides(world, cls)
        yield from _passed_on(cls)
    yield from _equal_copies(world)


def _equal_overrides(world: World, cls: ClassSymbol) -> Iterator[Finding]:
    """Methods whose removal would change nothing, in the class itself and in all that derive from it."""
    heirs = [cls, *(other for other in world.classes if other is not cls and cls in other.mro)]
    for method in cls.methods.values():
        behind = [heir.after(cls, method.name) for heir in heirs]
        if any(b is None for b in behind) or _is_stub(method):
            continue
        text = plain_text(method.node)
        first = behind[0]
        if first and all(b and plain_text(b.node) == text and _same_names(method, b) for b in behind):
            what = f"{method.qualname} is the same as {first.qualname}, which it overrides"
            yield needless(
                "equal-override", cls.name, method.name, what, place(method), place(first),
                "it stays as it is when the method it hides is improved", "delete the override",
            )  # fmt: skip


def _passed_on(cls: ClassSymbol) -> Iterator[Finding]:
    """Methods that only call what they override, with their own arguments."""
    for method in cls.methods.values():
        behind = cls.after(cls, method.name)
        if behind is None or method.node.decorator_list or not _only_super(method):
            continue
        if ast.unparse(method.node.args) == ast.unparse(behind.node.args):
            what = f"{method.qualname} does nothing but call {behind.qualname}"
            yield needless(
                "passed-on", cls.name, method.name, what, place(method), place(behind),
                "it must follow every change of the signature", "delete the override",
            )  # fmt: skip


def _equal_copies(world: World) -> Iterator[Finding]:
    """Top-level classes and functions that are word for word what the given vllm-ascend has."""
    for copy in world.copies:
        if copy.unit.owner or copy.target is None:
            continue
        theirs = [s.key for s in split_statements(copy.target.source) if s.key != END]
        if theirs == [s.key for s in copy.ours if s.key != END]:
            what = f"{copy.unit.qualname} is the same as vllm-ascend's {copy.upstream_name}"
            here = Side("vllm-omni", copy.path, copy.unit.start + 1, "copy")
            there = Side("vllm-ascend", copy.upstream_path, copy.target.start + 1, copy.upstream_name)
            why = "it stays as it is when upstream's changes"
            yield needless("equal-copy", "", copy.unit.name, what, here, there, why, "import upstream's")


def _same_names(one: Method, other: Method) -> bool:
    """Whether the global names in two equal methods stand for the same things in both files."""
    files = one.owner.file, other.owner.file
    names = {node.id for node in walk(one.node) if isinstance(node, ast.Name)} & _globals(files[0])
    for name in names:
        here, there = (file.resolve(name) for file in files)
        if here is not there and here != there:
            return False
    # A super() call reaches another class from each of the two.
    return not any(isinstance(node, ast.Name) and node.id == "super" for node in walk(one.node))


def _only_super(method: Method) -> bool:
    body = [node for node in method.node.body if not _is_text(node)]
    value = body[0].value if len(body) == 1 and isinstance(body[0], (ast.Return, ast.Expr)) else None
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == f"super().{method.name}"):
        return False
    args = method.node.args
    names = [arg.arg for arg in [*args.posonlyargs, *args.args]][1:]
    given = [ast.unparse(arg) for arg in value.args] + [
        ast.unparse(k.value) if k.arg in (None, ast.unparse(k.value)) else "" for k in value.keywords
    ]
    starred = [f"*{args.vararg.arg}"] if args.vararg else []
    return given == [
        *names,
        *starred,
        *(a.arg for a in args.kwonlyargs),
        *([args.kwarg.arg] if args.kwarg else []),
    ]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_stub(method: Method) -> bool:
    return all(isinstance(node, (ast.Pass, ast.Expr)) for node in method.node.body)


def _globals(file: File) -> set[str]:
    return {*file.classes, *file.functions, *file.values, *file.imports}
