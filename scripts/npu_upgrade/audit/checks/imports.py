"""Imports, module attributes and dotted paths in strings that the given trees do not have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import TypeGuard

from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.overrides import device_files, device_scopes
from npu_upgrade.audit.world import World
from npu_upgrade.code.definitions import absolute, catches_import
from npu_upgrade.code.names import Import, imports_in
from npu_upgrade.code.walk import dotted, last_name, string, walk
from npu_upgrade.ground.tables import shortened
from npu_upgrade.lineage.project import distribution
from npu_upgrade.program.absent import is_plain_to_see, lacks, missing_import, missing_path, never_had
from npu_upgrade.program.live import Live, live_statements
from npu_upgrade.program.mentions import Mentions
from npu_upgrade.program.places import advice, new_modules, new_places, patch_target
from npu_upgrade.program.program import ClassSymbol, File, ModuleSymbol, Program

ABOUT = "imported names, attributes of modules and dotted paths that the trees have not, or as another thing"

_TRACES = 2  # places that are named
_NAMES = 4
_TELLING = 60
"""A word that more files than this have tells nothing of whom they import."""
_WHEN = {
    "": "the file cannot be imported, and neither can what imports it",
    "late": "the call fails when it is reached",
    "typing": "only type checkers see it; the annotation describes nothing",
}


def check(world: World) -> Iterator[Finding]:
    for file in world.files:
        one = FileImports(file, world)
        yield from one.findings()
        yield from one.optional()
    for file in _needed(world):
        yield from (found for found in FileImports(file, world).imports() if found.kind == "missing-import")
    audited = frozenset(file.module for file in world.files)
    for file in _importing(world) if world.of_omni else ():
        yield from FileImports(file, world).imports(of=audited)
    yield from _for_device(world)
    yield from _of_plugin(world, audited)


def _of_plugin(world: World, audited: frozenset[str]) -> Iterator[Finding]:
    """What the project's other files import from the plugin, wherever they do."""
    program, package = world.program, world.side.project.package
    for path in program.holding(package, world.plugin) if world.of_omni else ():
        file = program.file(path)
        if file and file.module not in audited:
            yield from FileImports(file, world).imports(within=world.plugin)


def _for_device(world: World) -> Iterator[Finding]:
    """What functions that are named for the device ask for, in the project's other files, and what these
    import as they are loaded.
    """
    for file in device_files(world):
        bodies = [scope.node.body for scope in device_scopes(world) if scope.file is file]
        for finding in FileImports(file, world).findings():
            line, loaded = finding.here.line, finding.kind == "missing-import"
            if loaded or any(body[0].lineno <= line <= (body[-1].end_lineno or 0) for body in bodies):
                yield finding


def _needed(world: World) -> list[File]:
    """The files of vllm-omni and vllm-ascend that run when the worker files are imported, one step deep.

    Those are the packages they lie in, what they and these packages import, and the classes' bases.
    """
    found = {base.file.path: base.file for cls in world.classes for base in cls.mro}
    packages = {file.path: file for file in _packages(world)}
    for file in [*world.worker_files, *packages.values()]:
        for item in (item for items in file.imports.values() for item in items):
            for name in (item.module, f"{item.module}.{item.name}"):
                if world.program.judges(name) and (other := world.program.module(name)):
                    found[other.path] = other
    audited = {file.path for file in world.files}
    needed = sorted((found | packages).items())
    return [file for path, file in needed if path not in audited and file.project != "vllm"]


def _importing(world: World) -> Iterator[File]:
    """The other files of the project whose text names a module of the audited ones."""
    audited = {file.path for file in world.files}
    package = world.side.project.package
    words = {file.module.rpartition(".")[2] for file in world.files}
    holding = (world.program.holding(package, word) for word in words)
    paths = {path for found in holding if len(found) <= _TELLING for path in found}
    modules = re.compile("|".join(sorted(re.escape(file.module) for file in world.files)))
    for path in sorted(paths - audited):
        if modules.search(world.program.text(path)) and (file := world.program.file(path)):
            yield file


def _packages(world: World) -> Iterator[File]:
    """The ``__init__`` files of the packages that the worker files lie in."""
    for file in world.worker_files:
        parts = file.path.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            if package := world.program.file("/".join([*parts[:count], "__init__.py"])):
                yield package


class FileImports:
    """One file with what of its imports, attributes and paths the trees do not have."""

    def __init__(self, file: File, world: World) -> None:
        self.file, self.program, self.world = file, world.program, world

    @cached_property
    def live(self) -> list[Live]:
        """The statements that may run; who only asks for owners needs none of them."""
        return list(live_statements(self.file.tree, self._works))

    @cached_property
    def places(self) -> dict[int, Live]:
        """The statement of every node that has to work, by the identity of the node."""
        lasting = (live for live in self.live if not live.typing_only)
        return {id(node): live for live in lasting for node in live.expressions()}

    @cached_property
    def bound(self) -> set[str]:
        return bound_locally(self.file)

    @cached_property
    def asked(self) -> set[str]:
        return asked_for(self.file)

    @cached_property
    def attributes_set(self) -> set[str]:
        """Attributes that something in this file assigns, of whatever object."""
        stored = (n for n in self.file.nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
        return {node.attr for node in stored}

    def imports(self, of: frozenset[str] = frozenset(), within: str = "") -> Iterator[Finding]:
        """The imports that fail, wherever they stand; ``of`` is the modules that alone are asked about,
        ``within`` the package of these.
        """
        for live in self.live:
            node = live.node
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            modules = [item.module for item in self._items(node)]
            if of and not of.intersection(modules):
                continue
            if not within or any(f"{module}.".startswith(f"{within}.") for module in modules):
                yield from self._imports(node, live)

    def loads(self, *, branches: bool) -> Iterator[str]:
        """The modules that its imports name, with what they take from them, and its dotted paths.

        ``branches`` has those in a branch of a function too, which not every user reaches.
        """
        for live in self.live:
            left_out = live.conditional and _in_function(live, self.file) and not branches
            if isinstance(live.node, (ast.Import, ast.ImportFrom)) and not live.typing_only and not left_out:
                yield from (f"{item.module}.{item.name}" for item in self._items(live.node))
        yield from (str(node.value).replace(":", ".") for node in self.file.nodes if self._is_path(node))

    def findings(self) -> Iterator[Finding]:
        yield from self.imports()
        for node in self.file.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                yield from self._attribute(node)
            elif self._is_path(node):
                yield from self._path(node)
            elif isinstance(node, ast.expr) and (target := patch_target(node)):
                yield from self._patch(node, *target)

    def optional(self) -> Iterator[Finding]:
        """Imports whose failure is caught, of what the trees have in another place: they always fail."""
        for live in self.live:
            if not isinstance(live.node, ast.Try):
                continue
            handlers = [one for one in live.node.handlers if catches_import(one.type)]
            otherwise = {item.bound for handler in handlers for item in _imports_below(handler)}
            for node in live.node.body if handlers else ():
                for item in self._items(node) if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
                    missing = None if item.bound in otherwise else missing_import(self.program, item)
                    if missing and _is_elsewhere(self.program, *missing):
                        why = "the failure is caught, so that what needs it is off without a word"
                        text = item.statement()
                        yield self._finding("missing-optional", live, node.lineno, *missing, why, text)

    def _works(self, node: ast.AST) -> bool:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            return True
        return all(not missing_import(self.program, item) for item in self._items(node))

    def _items(self, node: ast.Import | ast.ImportFrom) -> list[Import]:
        return [absolute(item, self.file.path) for item in imports_in(node)]

    def _imports(self, node: ast.Import | ast.ImportFrom, live: Live) -> Iterator[Finding]:
        for alias, item in zip(node.names, self._items(node), strict=True):
            if missing := missing_import(self.program, item):
                when = "typing" if live.typing_only else "late" if _in_function(live, self.file) else ""
                kind = {"": "missing-import", "late": "missing-import-late", "typing": "missing-type"}[when]
                yield self._finding(kind, live, alias.lineno, *missing, _WHEN[when], item.statement())
            elif alias.asname and item.name and alias.asname != item.name:
                yield from self._under_anothers_name(item, alias, live)

    def _under_anothers_name(self, item: Import, alias: ast.alias, live: Live) -> Iterator[Finding]:
        """An import of something under a name that the module defines, too, as something else."""
        if not is_plain_to_see(self.program, item.module, str(alias.asname)):
            return
        yield Finding(
            kind="under-anothers-name",
            owner=live.scope,
            subject=f"{item.module}.{item.name} as {alias.asname}",
            what=f"{item.module} has its own {alias.asname}; its {item.name} is taken under that name",
            here=side(self.file, alias.lineno, item.statement()),
            there=None,
            incident="A",
            why="what is asked for by that name is another thing",
            todo=f"import {alias.asname}, or give {item.name} a name that the module does not have",
        )

    def _is_path(self, node: ast.AST) -> TypeGuard[ast.Constant]:
        """Whether it is a string with the dotted path of something in one of the trees."""
        found = _PATH.fullmatch(string(node))
        return found is not None and found[1] in self.file.program.trees

    def _attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        missing = self._missing_attribute(node)
        if missing and (live := self.places.get(id(node))):
            why = "the expression raises AttributeError when it is reached"
            yield self._finding("missing-attribute", live, node.lineno, *missing, why, ast.unparse(node))

    def _patch(self, node: ast.expr, target: ast.expr, name: str) -> Iterator[Finding]:
        """Setting a name that is not there replaces nothing; it may also be meant to add one."""
        owners = self.owners(target, name)
        if not owners or not all(never_had(self.program, owner, name) for owner in owners):
            return
        old = self.world.old
        was_there = old is not None and not any(never_had(old.program, owner, name) for owner in owners)
        live = self.places.get(id(node))
        if live and (was_there or (old is None and self.world.of_omni)):
            why = "nothing reads the name any more, so that the patch is silently without effect"
            yield self._finding("dead-patch", live, node.lineno, owners[0], name, why, ast.unparse(target))

    def _missing_attribute(self, node: ast.Attribute) -> tuple[str, str] | None:
        """The module or class, and the name, when ``node`` reads a name that one of the trees lacks."""
        owners = self.owners(node.value, node.attr) or self._own_class(node.value, node.attr)
        if not owners or not all(lacks(self.program, owner, node.attr) for owner in owners):
            return None
        return owners[0], node.attr

    def owners(self, expr: ast.expr, name: str) -> list[str]:
        """The modules or classes of the trees that ``expr`` stands for; none when that is not sure."""
        parts = dotted(expr).split(".")
        if not parts[0] or name.startswith("__"):
            return []
        items = [*self.file.imports.get(parts[0], []), *self.file.local_imports.get(parts[0], [])]
        owners = [self._owner(item, parts[1:]) for item in items]
        known = [owner for owner in owners if owner]
        if len(known) < len(owners) or not known:
            return []
        return [] if parts[0] in self.bound or name in self.asked else known

    def _own_class(self, expr: ast.expr, name: str) -> list[str]:
        """The class of this very file that ``expr`` names, unless something here sets ``name``."""
        known = isinstance(expr, ast.Name) and expr.id in self.file.classes and expr.id not in self.bound
        if not known or name.startswith("__") or name in self.asked | self.attributes_set:
            return []
        return [f"{self.file.module}.{ast.unparse(expr)}"]

    def _owner(self, item: Import, rest: list[str]) -> str | None:
        """The module or class of the trees that a dotted name stands for, whose root ``item`` binds."""
        if not self.program.judges(item.module):
            return None
        symbol = self.program.imported(item)
        for part in rest:
            if not isinstance(symbol, ModuleSymbol):
                return None
            symbol = self.program.lookup(symbol.name, part)
        if isinstance(symbol, ClassSymbol):
            return f"{symbol.file.module}.{symbol.name}"
        return symbol.name if isinstance(symbol, ModuleSymbol) else None

    def _path(self, node: ast.Constant) -> Iterator[Finding]:
        yield from self._passed_on(node)
        missing = missing_path(self.program, str(node.value))
        live = self.places.get(id(node)) if missing else None
        # A file that puts modules into sys.modules may make the one it names.
        if missing is None or live is None or "sys.modules" in self.file.source:
            return
        if id(node) not in {id(part) for other in live.expressions() for part in no_paths(other)}:
            why = "whoever imports by this path fails"
            yield self._finding("missing-path", live, node.lineno, *missing, why, repr(node.value))

    def _passed_on(self, node: ast.Constant) -> Iterator[Finding]:
        """A path to another project's class that a module imports, where it has an heir of it."""
        module, _, name = str(node.value).replace(":", ".").rpartition(".")
        file = self.program.module(module)
        symbol = file.resolve(ast.Name(name)) if file and name in file.imports else None
        if file is None or not isinstance(symbol, ClassSymbol) or symbol.project == file.project:
            return
        heir = next((cls for cls in file.classes.values() if symbol in cls.mro[1:]), None)
        if heir and (live := self.places.get(id(node))):
            project, text = symbol.project, repr(node.value)
            yield Finding(
                kind="passed-on",
                owner=live.scope,
                subject=f"{module}.{name}",
                what=f"{name} of {module} is {project}'s, which {heir.name} there derives from",
                here=side(self.file, node.lineno, text),
                there=side(heir),
                incident="A",
                why=f"the path leads to {project}'s class, without what {heir.name} has",
                todo=f"name {module}.{heir.name}, or {project}'s class by its own module",
            )

    def _finding(
        self, kind: str, live: Live, line: int, module: str, name: str, why: str, text: str
    ) -> Finding:
        project = distribution(module.partition(".")[0])
        lacking = f"no {name} in {module}" if name else f"no module {module}"
        there = self.program.module(module)
        todo = traced = advice(self.program, module, name)
        if name and self.world.old and todo.startswith("nothing is called"):
            traced += _traces(self.world.old.program, self.program, module, name)
        return Finding(
            kind=kind,
            owner=live.scope,
            subject=f"{module}.{name}" if name else module,
            what=f"{project} has {lacking}; {todo}",
            here=side(self.file, line, text),
            there=Side(project, there.path, 0, f"does not have {name}") if there else None,
            incident="A",
            why=why,
            todo=traced,
            like="vllm-omni #5350",
        )


def _traces(old: Program, new: Program, module: str, name: str) -> str:
    """Where to look for what replaced a name: who used it before, and what of its kind is new.

    That is what its own module has now, else the files called alike.
    """
    package, last = module.partition(".")[0], module.rpartition(".")[2]
    home, before = old.module(module), old.paths(package)
    elsewhere = {*before} - ({home.path} if home else set())
    uses = [f"{one.path}:{one.line}" for one in Mentions(old).of(name) if one.path in elsewhere]
    came = [path for path in sorted({*new.paths(package)} - {*before}) if last in path.rpartition("/")[2]]
    said = [f"the old {distribution(package)} used it in {shortened(uses[::-1], _TRACES)}"] if uses else []
    if fresh := _fresh(home, new.module(module), name):
        said += [f"new in {module}: {shortened(fresh, _NAMES)}"]
    elif came:
        said += [f"new there: {shortened(came, _TRACES)}"]
    return "".join(f"; {one}" for one in said)


def _fresh(before: File | None, now: File | None, name: str) -> list[str]:
    """The classes of a module that it had not before, functions where the name was one."""
    if before is None or now is None:
        return []
    was_function = name in before.functions
    had, has = ({*(file.functions if was_function else file.classes)} for file in (before, now))
    return sorted(one for one in has - had if not one.startswith("_"))


def _imports_below(node: ast.AST) -> Iterator[Import]:
    for inner in walk(node):
        if isinstance(inner, (ast.Import, ast.ImportFrom)):
            yield from imports_in(inner)


def _is_elsewhere(program: Program, module: str, name: str) -> bool:
    """Whether what an import does not find is defined in another place of the same package."""
    return bool(new_places(program, module, name) if name else new_modules(program, module))


def _in_function(live: Live, file: File) -> bool:
    first, _, rest = live.scope.partition(".")
    return bool(rest) or (bool(first) and first not in file.classes)


_PATH = re.compile(r"([A-Za-z_]\w*)(\.[A-Za-z_]\w*){2,}(:[A-Za-z_]\w*)?")
_NOT_PATHS = {"getLogger", "init_logger", "entry_points", "find_spec", "startswith", "endswith"}
_ASKING = {"hasattr", "getattr"}


def asked_for(file: File) -> set[str]:
    """Attributes that a file looks for before it uses them."""
    calls = [node for node in file.nodes if isinstance(node, ast.Call) and len(node.args) > 1]
    asking = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id in _ASKING]
    return {string(node.args[1]) for node in asking}


def bound_locally(file: File) -> set[str]:
    """Names that some function of a file takes or assigns, which may hide an import."""
    found = {node.arg for node in file.nodes if isinstance(node, ast.arg)}
    stored = (node for node in file.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return found | {node.id for node in stored}


def no_paths(node: ast.AST) -> list[ast.expr]:
    """Strings that only look like import paths: names of loggers, parts of text, what is compared."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.JoinedStr):
        return node.values
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Call) and last_name(node.func) in _NOT_PATHS:
        return [*node.args, *(keyword.value for keyword in node.keywords)]
    return []
