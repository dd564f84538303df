"""What the NPU side makes and nothing uses: the other half of it was lost or has another name."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import functions_of, is_stub, models_of, overriding
from npu_upgrade.audit.parity.counterparts import share_within
from npu_upgrade.audit.world import World
from npu_upgrade.code.definitions import module_of
from npu_upgrade.code.names import Import
from npu_upgrade.code.signatures import Function, defaults_of, named_of
from npu_upgrade.code.walk import names_read, walk
from npu_upgrade.program.mentions import Mentions
from npu_upgrade.program.places import importers
from npu_upgrade.program.program import ClassSymbol, File, Method
from npu_upgrade.program.scope import Scope, decorators
from npu_upgrade.program.self_use import self_use

_WORD = re.compile(r"\w+")
_COPIED = 0.3
ABOUT = "imports, locals, parameters and functions of the NPU side that nothing uses"


def check(world: World) -> Iterator[Finding]:
    for file in world.files:
        for scope in functions_of(file):
            yield from _locals(scope)
        for cls in file.classes.values():
            for method, _ in overriding(cls):
                # less the NPU side's own
                models = [
                    one for one in models_of(cls, method.name, world) if one.owner.file not in world.files
                ]
                yield from _parameters(method, models)
                yield from _added(method, models)
        yield from _imports(file, world)
    # What vllm-ascend makes and does not call, vllm-omni or others may.
    yield from _uncalled(world) if world.of_omni else ()


def _imports(file: File, world: World) -> Iterator[Finding]:
    """Names that a module imports and neither has nor hands on."""
    if file.path.endswith("__init__.py"):
        return
    words = Counter(_WORD.findall(file.source))
    found = (name for name, items in file.imports.items() if items[0].module != "__future__")
    for name in (name for name in found if words[name] == 1):
        line = next(place for place, text in enumerate(file.lines, 1) if name in _WORD.findall(text))
        handed_on = importers(world.program, Import(module_of(file.path), name))
        if "noqa" not in file.lines[line - 1] and not handed_on:
            yield _finding("import", file, line, "", name, f"{file.path} imports {name} for nothing")


def _locals(scope: Scope) -> Iterator[Finding]:
    """Locals that are computed by a statement of their own and never read."""
    node = scope.node
    if not isinstance(node, Function):
        return
    read = names_read(node)
    outer = {name for n in walk(node) if isinstance(n, (ast.Global, ast.Nonlocal)) for name in n.names}
    for stmt in walk(node):
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
        if not isinstance(target, ast.Name) or target.id.startswith("_") or target.id in outer:
            continue
        if target.id not in read and "locals()" not in ast.unparse(node):
            what = f"{scope.name} computes {target.id}, and nothing reads it"
            yield _finding("local", scope.file, target.lineno, scope.name, target.id, what)


def _parameters(method: Method, models: Sequence[Method]) -> Iterator[Finding]:
    """Parameters that all other methods of the name do something with, and this one does not."""
    models = [model for model in models if not is_stub(model.node)]
    # A rewrite does things another way; a copy that leaves a parameter out has lost it.
    here = [(method.owner.file, method.node)]
    if method.name in self_use(method.node).supers or not any(
        share_within(model.owner.file, model.node, here) >= _COPIED for model in models
    ):
        return
    read = set.intersection(*(names_read(model.node) for model in models)) - names_read(method.node)
    for arg in named_of(method.node.args)[1:]:
        if arg.arg in read and all(arg.arg in map(_name, named_of(model.node.args)) for model in models):
            what = f"{method.qualname} takes {arg.arg} and does nothing with it; {models[0].qualname} does"
            subject = f"{arg.arg} in {method.name}"
            yield _finding(
                "parameter", method.owner.file, arg.lineno, method.owner.name, subject, what, models[0]
            )


def _added(method: Method, models: Sequence[Method]) -> Iterator[Finding]:
    """Parameters that no other method of the name has, and that this one asks for and takes for nothing."""
    if not models or any(model.node.args.kwarg for model in models) or is_stub(method.node):
        return
    known = {arg.arg for model in models for arg in named_of(model.node.args)}
    # one more that need not be given does no harm
    known |= {arg.arg for arg, default in defaults_of(method.node.args) if default is not None}
    for arg in named_of(method.node.args)[1:]:
        if arg.arg not in known | names_read(method.node) and not arg.arg.startswith("_"):
            what = f"{method.qualname} takes {arg.arg} for nothing; {models[0].qualname} does not take it"
            subject = f"{arg.arg} in {method.name}"
            yield _finding(
                "parameter", method.owner.file, arg.lineno, method.owner.name, subject, what, models[0]
            )


def _name(arg: ast.arg) -> str:
    return arg.arg


def _is_open(cls: ClassSymbol) -> bool:
    """Whether a class has a base outside the trees, which may call what it defines."""
    return any(owner.outside for owner in cls.mro)


def _uncalled(world: World) -> Iterator[Finding]:
    """Methods and functions of the NPU side that no line of the trees names."""
    found: list[tuple[File, ClassSymbol | None, Function]] = []
    for file in world.files:
        found += [(file, None, function.node) for function in file.functions.values()]
        for cls in file.classes.values():
            for name, method in cls.methods.items():
                of_others = _is_open(cls) and not name.startswith("_")
                if not of_others and not any(name in owner.methods for owner in cls.mro[1:]):
                    found.append((file, cls, method.node))
    words = Counter(word for file in world.files for word in _WORD.findall(file.source))
    # A name with two places at least has one beside its definition, or is defined for a caller of both.
    names = {node.name for _, _, node in found if words[node.name] == 1 and not node.name.startswith("__")}
    mentions = Mentions(world.program)
    for file, cls, node in found:
        if node.name not in names or (decorators(node) - {"staticmethod", "classmethod", "property"}):
            continue
        defined = re.compile(rf"^\s*(?:async\s+)?def\s+{node.name}\b")
        named = list(mentions.of(node.name))
        # A base outside the trees may call by a name of its own: one that several classes define.
        hook = cls and len(named) > 1 and _is_open(cls)
        if not hook and all(defined.search(mention.text) for mention in named):
            owner = cls.name if cls else ""
            what = f"nothing calls {owner}{'.' if owner else ''}{node.name}"
            yield _finding("uncalled", file, node.lineno, owner, node.name, what)


def _finding(
    kind: str, file: File, line: int, owner: str, name: str, what: str, above: Method | None = None
) -> Finding:
    return Finding(
        kind=kind,
        owner=owner,
        subject=name,
        what=what,
        here=side(file, line, name),
        there=side(above) if above else None,
        incident="P",
        why="what it was made for does not happen, and nothing says so",
        todo="use it where it is meant to be used, by the name that is asked for now, or remove it",
    )
