"""Functions that take the place of others: whether they fit those, the class they land on, and who calls."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.audit.checks.imports import FileImports
from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import forgets, is_stub
from npu_upgrade.audit.world import World
from npu_upgrade.code.names import ALWAYS_DEFINED, names_of
from npu_upgrade.code.signatures import Function, displaced, misfits, not_taken, signature
from npu_upgrade.code.walk import bound_once, dotted, last_name, string
from npu_upgrade.program.absent import never_had
from npu_upgrade.program.callees import Resolver, resolver_of
from npu_upgrade.program.members import MODULE_NAMES, is_module
from npu_upgrade.program.places import files_with, patch_target
from npu_upgrade.program.program import ClassSymbol, File, FunctionSymbol
from npu_upgrade.program.scope import decorators
from npu_upgrade.program.self_use import self_use

ABOUT = "functions put in place of others that do not fit them, and names that nobody reads"

_KINDS = {"staticmethod", "classmethod"}
_FRAMEWORK = {"Module", "object", "ABC", "Generic", "Protocol"}


@dataclass(frozen=True)
class Patch:
    """``value`` is put under ``name`` of a module or class; ``original`` is what stands there, None
    where nothing does."""

    file: File
    node: ast.expr
    value: ast.expr
    owner: str
    name: str
    cls: ClassSymbol | None
    original: Function | None
    home: File

    @property
    def place(self) -> str:
        return f"{self.owner.rpartition('.')[2]}.{self.name}"


def check(world: World) -> Iterator[Finding]:
    resolver = resolver_of(world.program)
    for file in world.files:
        for patch in _patches(file, world):
            yield from _judged(patch, world, resolver)
        yield from _transplants(file, world)


def _transplants(file: File, world: World) -> Iterator[Finding]:
    """Code objects that are put into another function, and the names they miss there."""
    sets = (node for node in file.nodes if isinstance(node, ast.Assign)) if ".__code__" in file.source else ()
    moved = [node for node in sets if _is_code(node.value) and _is_code(node.targets[0])]
    tables = list(_functions(symtable.symtable(file.source, "", "exec"))) if moved else []
    for node in moved:
        name = dotted(node.value).removesuffix(".__code__")
        if len(found := [table for table in tables if table.get_name() == name]) != 1:
            continue
        if free := sorted(found[0].get_frees()):
            why = "a function without a closure takes no code with free names: ValueError when it is set"
            yield _transplanted(file, node, name, free, "of where it is defined", why)
        elif missing := _not_there(file, node.targets[0], set(found[0].get_globals()), world):
            why = "the code runs with the names of the other module: NameError when it is called"
            yield _transplanted(file, node, name, missing, "which that function's module has not", why)


def _not_there(file: File, target: ast.expr, names: set[str], world: World) -> list[str]:
    """The names that the code reads and the module that it is put into has not; where that is not known,
    those that are this file's own."""
    home = _home(file, target, world)
    if home is None:
        own = {*file.functions, *file.classes, *file.values}
        return [] if dotted(target).partition(".")[0] in own else sorted(names & own)
    if home is file or "*" in home.imports:
        return []
    return sorted(names - names_of(home.source).bound - ALWAYS_DEFINED)


def _home(file: File, target: ast.expr, world: World) -> File | None:
    """The file of the function whose code is replaced."""
    held = target.value if isinstance(target, ast.Attribute) else target
    named = _aliases(file).get(held.id, held) if isinstance(held, ast.Name) else held
    if isinstance(named, ast.Attribute):
        owners = FileImports(file, world).owners(named.value, named.attr)
        return world.program.module(owners[0]) if len(set(owners)) == 1 else None
    name = dotted(named)
    items = [*file.imports.get(name, ()), *file.local_imports.get(name, ())]
    found = [world.program.imported(item) for item in items]
    return found[0].file if len(found) == 1 and isinstance(found[0], FunctionSymbol) else None


def _transplanted(
    file: File, node: ast.Assign, name: str, missing: Sequence[str], where: str, why: str
) -> Finding:
    names = ", ".join(missing)
    return Finding(
        kind="transplanted",
        owner=name,
        subject=f"{dotted(node.targets[0])}: {names}",
        what=f"the code of {name} is put into another function and needs {names}, {where}",
        here=side(file, node, ast.unparse(node)),
        there=None,
        incident="S",
        why=why,
        todo=f"let {name} get {names} by an import in its body",
    )


def _is_code(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "__code__" and bool(dotted(node))


def _functions(table: symtable.SymbolTable) -> Iterator[symtable.Function]:
    for child in table.get_children():
        if isinstance(child, symtable.Function):
            yield child
        yield from _functions(child)


def _judged(patch: Patch, world: World, resolver: Resolver) -> Iterator[Finding]:
    if patch.original is None:
        if not _is_read(patch, world):
            what = f"nothing reads {patch.place}, which {patch.owner} never had"
            yield _finding("unread-name", patch, "", what, None)
        return
    wrapped = last_name(patch.value.func) if isinstance(patch.value, ast.Call) else ""
    value = patch.value.args[0] if wrapped in _KINDS and isinstance(patch.value, ast.Call) else patch.value
    new, kinds = _function(value, patch.file)
    own = decorators(patch.original) & _KINDS
    lands_as = {wrapped} & _KINDS or kinds - {"staticmethod"}
    if new is None:
        return
    if patch.cls and own == {"staticmethod"} and not lands_as and _is_called_on_self(patch):
        what = f"{patch.place} is a static method, and a plain function is put there"
        yield _finding("plain-for-static", patch, " [kind]", what, new)
    elif names := _not_fitting(new, patch):
        what = f"what is put in place of {patch.place} does not fit it: {', '.join(names)}"
        yield _finding("replacement", patch, f"({', '.join(names)})", what, new)
    elif moved := ", ".join(displaced(new, patch.original)):
        what = f"what is put in place of {patch.place} takes {moved} in another order"
        yield _finding("replacement", patch, f"({moved})", what, new)
    if resolver.gives(patch.original) and not resolver.gives(new) and not is_stub(new):
        what = f"{patch.place} returns something, and what is put there returns nothing"
        yield _finding("no-result", patch, " -> None", what, new)
    elif forgets(new, patch.original, resolver):
        what = f"what is put in place of {patch.place} may end without a result, and that always has one"
        yield _finding("no-result", patch, " -> None at its end", what, new)
    if wrong := _misfits(patch, new, world, bound=bool(patch.cls) and lands_as != {"staticmethod"}):
        what = f"a caller of {patch.place} does not fit what is put there: {wrong[0]}"
        yield _finding("caller", patch, f": {wrong[0].rpartition(': ')[2]}", what, new)
    if patch.cls and not own and not lands_as:
        yield from _lacking(patch, new, patch.cls, world)


def _patches(file: File, world: World) -> Iterator[Patch]:
    """The names that a file sets on modules and classes of the trees."""
    reader = FileImports(file, world)
    aliases = _aliases(file)
    for node in file.nodes:
        if isinstance(node, ast.Assign):
            targets = [t for t in node.targets if isinstance(t, ast.Attribute)]
            pairs: list[tuple[ast.expr, ast.expr]] = [(target, node.value) for target in targets]
        elif isinstance(node, ast.Call) and len(node.args) == 3 and last_name(node.func) == "setattr":
            pairs = [(node, node.args[2])]
        else:
            continue
        for target, value in pairs:
            if not (found := patch_target(target)):
                continue
            expr, name = found
            expr = aliases.get(expr.id, expr) if isinstance(expr, ast.Name) else expr
            owners = reader.owners(expr, "" if name.startswith("__") else name)
            if len(set(owners)) == 1:
                yield from _patch(file, target, value, owners[0], name, world)


def _aliases(file: File) -> dict[str, ast.expr]:
    """The names that a file binds once, to a name or an attribute of something."""
    once = bound_once(file.nodes)
    assigned = (node for node in file.nodes if isinstance(node, ast.Assign) and len(node.targets) == 1)
    pairs = ((node.targets[0], node.value) for node in assigned if dotted(node.value))
    return {one.id: value for one, value in pairs if isinstance(one, ast.Name) and one.id in once}


def _patch(
    file: File, node: ast.expr, value: ast.expr, owner: str, name: str, world: World
) -> Iterator[Patch]:
    module, _, last = owner.rpartition(".")
    home = world.program.module(owner) or world.program.module(module)
    if home is None:
        return
    cls = home.classes.get(last) if world.program.module(owner) is None else None
    if cls:
        method = cls.lookup(name)
        original = method.node if method else None
    else:
        symbol = world.program.lookup(owner, name)
        original = symbol.node if isinstance(symbol, FunctionSymbol) else None
    if original or never_had(world.program, owner, name) or (cls and _is_new_to_module(cls, name)):
        yield Patch(file, node, value, owner, name, cls, original, home)


def _is_new_to_module(cls: ClassSymbol, name: str) -> bool:
    """Whether a module of torch's has no such attribute by itself, and its class gives it none."""
    if not is_module(cls) or name in MODULE_NAMES or name.startswith("__"):
        return False
    word = re.compile(rf"\b{name}\b")
    return not any(word.search(ast.unparse(owner.node)) for owner in cls.mro)


def _function(value: ast.expr, file: File) -> tuple[Function | None, set[str]]:
    """The function that a value stands for, and how it is decorated."""
    symbol = file.resolve(value) if isinstance(value, (ast.Name, ast.Attribute)) else None
    if isinstance(symbol, FunctionSymbol):
        return symbol.node, decorators(symbol.node) & _KINDS
    if isinstance(value, ast.Name) and not (value.id in file.imports or value.id in file.classes):
        inner = [node for node in file.nodes if isinstance(node, Function) and node.name == value.id]
        return (inner[0], decorators(inner[0]) & _KINDS) if len(inner) == 1 else (None, set())
    owner = file.resolve(value.value) if isinstance(value, ast.Attribute) else None
    method = (
        owner.lookup(value.attr)
        if isinstance(owner, ClassSymbol) and isinstance(value, ast.Attribute)
        else None
    )
    return (method.node, decorators(method.node) & _KINDS) if method else (None, set())


def _not_fitting(new: Function, patch: Patch) -> list[str]:
    """What the replacement asks for and the original does not have."""
    assert patch.original
    return [name for name in not_taken(new, patch.original) if " " in name]


def _misfits(patch: Patch, new: Function, world: World, *, bound: bool) -> list[str]:
    """The calls that fit the original and not the replacement, in files that know what it is put on."""
    assert patch.original
    if not any(" " not in name for name in not_taken(new, patch.original)):
        return []
    last = patch.owner.rpartition(".")[2]
    calls = [
        node
        for file in _files_with(patch.name, world)
        if last in file.source or file is patch.home
        for node in file.nodes
        if isinstance(node, ast.Call) and last_name(node.func) == patch.name
        if not _is_overridden(file, node, world)
    ]
    return misfits(calls, patch.original, new, bound)


def _is_overridden(file: File, call: ast.Call, world: World) -> bool:
    """Whether a call stands in a method in whose place the NPU side has its own."""
    method = file.method_at(call.lineno)
    heirs = (cls for cls in world.side.classes if method and method.owner in cls.mro[1:])
    return any(method and cls.lookup(method.name) is not method for cls in heirs)


def _is_called_on_self(patch: Patch) -> bool:
    assert patch.cls
    return any(f"self.{patch.name}(" in cls.file.source for cls in patch.cls.mro)


def _is_read(patch: Patch, world: World) -> bool:
    """Whether a file that may know the module or class has the name for anything but setting it."""
    last = patch.owner.rpartition(".")[2]
    return any(
        any(_reads(node, patch.name) for node in file.nodes)
        for file in _files_with(patch.name, world)
        if last in file.source or file is patch.home
    )


def _files_with(name: str, world: World) -> Iterator[File]:
    word = re.compile(rf"\b{name}\b")
    for package in world.program.trees:
        for path, text in files_with(world.program, package, name):
            if word.search(text) and (file := world.program.file(path)):
                yield file


def _reads(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Call):
        return any(string(arg) == name for arg in node.args)
    if isinstance(node, (ast.Assign, ast.For)):
        listed = node.value if isinstance(node, ast.Assign) else node.iter
        return isinstance(listed, (ast.Tuple, ast.List, ast.Set)) and name in map(string, listed.elts)
    if isinstance(node, ast.Attribute):
        return node.attr == name and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Name):
        return node.id == name and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.alias) and node.name == name


def _lacking(patch: Patch, new: Function, cls: ClassSymbol, world: World) -> Iterator[Finding]:
    """What the function reads of its first argument and the class it is put on does not have."""
    use = self_use(new)
    unset = {name for name, reads in use.reads.items() if _is_read_first(name, reads, new)}
    for name in sorted(unset):
        if not name.startswith("__") and not _has(cls, name, patch.file, new, world):
            what = f"{new.name} is put on {cls.name} and reads self.{name}, which that has not"
            yield _finding("lacking", patch, f": {name}", what, new)


def _is_read_first(name: str, reads: Sequence[ast.expr], new: Function) -> bool:
    """Whether a function reads an attribute of its object that no statement above has set."""
    written = [write.node.lineno for write in self_use(new).writes.get(name, ())]
    return not written or min(read.lineno for read in reads) < min(written)


def _has(cls: ClassSymbol, name: str, file: File, new: Function, world: World) -> bool:
    """Whether objects of the class have the attribute, or may: torch's modules bring names of their own,
    which others read without setting them."""
    if any(last_name(base) not in _FRAMEWORK for owner in cls.mro for base in owner.outside):
        return True
    word = re.compile(rf"\b{name}\b")
    if any(word.search(owner.file.source) for owner in cls.mro):
        return True
    made = re.compile(rf"\.{name}\b[^=\n]*=(?!=)|def {name}\b|[\"']{name}[\"']")
    read = re.compile(rf"\bself\.{name}\b")
    others = (other for other in _files_with(name, world) if read.search(other.source))
    rows = file.source.splitlines()
    beside = "\n".join([*rows[: new.lineno - 1], *rows[new.end_lineno or new.lineno :]])
    return bool(made.search(beside)) or any(not made.search(o.source) for o in others if o is not file)


def _finding(kind: str, patch: Patch, subject: str, what: str, new: Function | None) -> Finding:
    return Finding(
        kind=kind,
        owner=new.name if new else patch.place,
        subject=f"{patch.place}{subject}",
        what=what,
        here=side(patch.file, patch.node, signature(new) if new else ast.unparse(patch.node)),
        there=side(patch.home, patch.original or 0, signature(patch.original) if patch.original else ""),
        incident="S" if patch.original else "A",
        why="callers of the original reach the replacement as they always did",
        todo="bring the replacement up to what it stands for" if new else "set the name that is read",
    )
