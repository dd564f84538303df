"""Modules, classes and functions of several trees, resolved through imports and re-exports.

Only source is read: nothing is imported or executed. What lies outside the trees (torch, the
standard library) is :data:`UNKNOWN`, which is never a reason to report anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from npu_upgrade.code.definitions import absolute, functions, lazy_names, module_of, top_level
from npu_upgrade.code.module import parse_module, split_lines
from npu_upgrade.code.names import Import, imports_in, names_of
from npu_upgrade.code.signatures import Function, places_of
from npu_upgrade.code.walk import dotted, last_name, walk
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.program.version_guards import may_guard, version_of, without_dead
from npu_upgrade.program.words import Words, words_of
from npu_upgrade.sources.tree import SourceTree

_HOPS = 8
# Statements that bind no value themselves; those inside if and try are looked at one by one.
_NO_VALUES = (Function, ast.ClassDef, ast.Import, ast.ImportFrom, ast.If, ast.Try)


class Unknown:
    """Something outside the trees, or that source alone does not tell."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


@dataclass(frozen=True)
class ModuleSymbol:
    """A module or package of the trees."""

    name: str


@dataclass(frozen=True)
class FunctionSymbol:
    """A function at the top level of a file."""

    file: File
    node: Function


@dataclass(frozen=True)
class ValueSymbol:
    """Anything else that a file binds at its top level; ``node`` is the statement."""

    file: File
    node: ast.stmt


@dataclass(eq=False)
class File:
    """One parsed file. ``project`` is vllm-omni, vllm-ascend, vllm or the name of another downstream."""

    project: str
    path: str
    source: str
    tree: ast.Module = field(repr=False)
    program: Program = field(repr=False)

    @cached_property
    def module(self) -> str:
        return module_of(self.path)

    @cached_property
    def lines(self) -> list[str]:
        """Its lines as Python counts them, without their ends."""
        return [line.rstrip("\r\n") for line in split_lines(self.source)]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of its tree."""
        return list(walk(self.tree))

    @cached_property
    def classes(self) -> dict[str, ClassSymbol]:
        """Its classes at the top level, those in ``if`` and ``try`` blocks included."""
        return {name: found[-1] for name, found in self._classes.items()}

    @cached_property
    def _classes(self) -> dict[str, list[ClassSymbol]]:
        """All classes of each name, in order."""
        found: dict[str, list[ClassSymbol]] = {}
        for node in top_level(self.tree.body):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(ClassSymbol(self, node))
        return found

    @cached_property
    def functions(self) -> dict[str, FunctionSymbol]:
        nodes = (node for node in top_level(self.tree.body) if isinstance(node, Function))
        return {node.name: FunctionSymbol(self, node) for node in nodes}

    @cached_property
    def imports(self) -> dict[str, list[Import]]:
        """Bound name -> its imports (absolute) at the top level; several where branches differ."""
        found: dict[str, list[Import]] = {}
        for node in top_level(self.tree.body):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for item in imports_in(node):
                    found.setdefault(item.bound, []).append(absolute(item, self.path))
        return found

    @cached_property
    def local_imports(self) -> dict[str, list[Import]]:
        """Imports inside functions, by bound name."""
        outer = {id(node) for node in top_level(self.tree.body)}
        found: dict[str, list[Import]] = {}
        for node in _statements(self.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)) and id(node) not in outer:
                for item in imports_in(node):
                    found.setdefault(item.bound, []).append(absolute(item, self.path))
        return found

    @cached_property
    def values(self) -> dict[str, ast.stmt]:
        """Names bound by assignment and the like at the top level, each with its statement."""
        found: dict[str, ast.stmt] = {}
        for node in top_level(self.tree.body):
            if isinstance(node, _NO_VALUES):
                continue
            for inner in walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    found.setdefault(inner.id, node)
        return found

    def may_make(self, name: str) -> bool:
        """Whether it may have ``name`` in some other way: by ``__getattr__``, ``global``, in ``except``."""
        getter = self.functions.get("__getattr__")
        if getter is None:
            return name in self.source and name in names_of(self.source).bound
        names = lazy_names(getter.node, self.values)
        return names is None or name in names

    def method_at(self, line: int) -> Method | None:
        """The method of one of its classes that has a line."""
        methods = (method for cls in self.classes.values() for method in cls.methods.values())
        return next((m for m in methods if m.node.lineno <= line <= (m.node.end_lineno or 0)), None)

    def resolve(self, expr: ast.expr | str, above: int | None = None) -> Symbol | None:
        """What a name or dotted name of this file stands for; None when it certainly is not there.

        ``above``: what this file itself defines at this line or below is not meant.
        """
        parts = (expr if isinstance(expr, str) else dotted(expr) or ast.unparse(expr)).split(".")
        if not all(part.isidentifier() for part in parts):
            return UNKNOWN
        symbol = self._first(parts[0], above)
        for part in parts[1:]:
            if not isinstance(symbol, ModuleSymbol):
                return UNKNOWN
            symbol = self.program.lookup(symbol.name, part)
        return symbol

    def _first(self, name: str, above: int | None) -> Symbol | None:
        own: list[ClassSymbol | FunctionSymbol | ValueSymbol] = [*reversed(self._classes.get(name, ()))]
        if name in self.functions:
            own.append(self.functions[name])
        if name in self.values:
            own.append(ValueSymbol(self, self.values[name]))
        for symbol in own:
            if above is None or symbol.node.lineno < above:
                return symbol
        # The usual class bears its own name; a special device may put another one under it.
        items = sorted(
            self.imports.get(name) or self.local_imports.get(name, []), key=lambda i: i.name != name
        )
        for item in items:
            found = self.program.imported(item)
            if found is not None:
                return found
        return self.by_star(name) or UNKNOWN

    def by_star(self, name: str, hops: int = _HOPS) -> Symbol | None:
        """What its star imports bind ``name`` to."""
        modules = [item.module for item in self.imports.get("*", [])]
        found = (self.program.lookup(module, name, hops - 1) for module in modules)
        return next((symbol for symbol in found if symbol is not None), None)


@dataclass(frozen=True)
class Method:
    """A method with the class whose body holds it."""

    owner: ClassSymbol
    node: Function

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def qualname(self) -> str:
        return f"{self.owner.name}.{self.node.name}"


@dataclass(eq=False)
class ClassSymbol:
    """A class of the trees; two are the same when they are the same object."""

    file: File
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def project(self) -> str:
        return self.file.project

    @cached_property
    def methods(self) -> dict[str, Method]:
        """The methods in its own body."""
        return {name: Method(self, node) for name, node in functions(self.node).items()}

    @cached_property
    def fields(self) -> dict[str, ast.stmt]:
        """Names assigned or annotated in its own body."""
        found: dict[str, ast.stmt] = {}
        for node in top_level(self.node.body):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = node
            elif isinstance(node, ast.Assign):
                found |= {n.id: node for t in node.targets for n in walk(t) if isinstance(n, ast.Name)}
        return found

    @cached_property
    def assigned(self) -> dict[str, list[tuple[Method, ast.stmt]]]:
        """Attributes that its methods assign on ``self``, each with where."""
        found: dict[str, list[tuple[Method, ast.stmt]]] = {}
        for method in self.methods.values():
            for name, node in _assigned_on_self(method.node):
                found.setdefault(name, []).append((method, node))
        return found

    @cached_property
    def bases(self) -> list[ClassSymbol | Unknown]:
        """Its bases in order; those outside the trees, or derived from it, are :data:`UNKNOWN`."""
        return [
            base if isinstance(base, ClassSymbol) and not base._leads_to(self) else UNKNOWN
            for base in self._named
        ]

    @property
    def outside(self) -> list[ast.expr]:
        """Its bases that are :data:`UNKNOWN`, as they are written."""
        pairs = zip(self.bases, self.node.bases, strict=True)
        return [node for base, node in pairs if base is UNKNOWN]

    @cached_property
    def _named(self) -> list[Symbol | None]:
        """What its bases' names stood for when it was made: ``class Runner(Runner)`` means the one above."""
        return [self.file.resolve(_plain_base(base), self.node.lineno) for base in self.node.bases]

    @cached_property
    def variants(self) -> list[ClassSymbol]:
        """It as made where another branch imports a name of its bases, or of theirs: a special device."""
        found = []
        for number, base in enumerate(self.node.bases):
            usual = self.bases[number]
            others = [*usual.variants] if isinstance(usual, ClassSymbol) else []
            if isinstance(base, ast.Name):
                items = map(self.file.program.imported, self.file.imports.get(base.id, ()))
                others += [one for one in items if isinstance(one, ClassSymbol) and one is not usual]
            for other in others:
                variant = ClassSymbol(self.file, self.node)
                variant._named = [*self._named[:number], other, *self._named[number + 1 :]]
                found.append(variant)
        return found

    def _leads_to(self, wanted: ClassSymbol) -> bool:
        """Whether ``wanted`` is among its ancestors, itself included."""
        seen: list[ClassSymbol] = [self]
        for cls in seen:  # grows meanwhile
            seen += [base for base in cls._named if isinstance(base, ClassSymbol) and base not in seen]
        return wanted in seen

    @cached_property
    def mro(self) -> tuple[ClassSymbol, ...]:
        """The method resolution order (C3) over the classes of the trees, itself first."""
        known = [base for base in self.bases if isinstance(base, ClassSymbol)]
        return (self, *_c3([list(base.mro) for base in known] + [known]))

    @cached_property
    def is_open(self) -> bool:
        """Whether it has a base that may bring names this program does not know."""
        return any(last_name(node) not in CLOSED for cls in self.mro for node in cls.outside)

    def lookup(self, name: str) -> Method | None:
        """The method that a call on an object of this class reaches."""
        return next((cls.methods[name] for cls in self.mro if name in cls.methods), None)

    def after(self, owner: ClassSymbol, name: str) -> Method | None:
        """The method that ``super().name`` in a method of ``owner`` reaches on such an object."""
        place = self.mro.index(owner) + 1 if owner in self.mro else 0
        return next((cls.methods[name] for cls in self.mro[place:] if name in cls.methods), None)


Symbol = ClassSymbol | FunctionSymbol | ValueSymbol | ModuleSymbol | Unknown
CLOSED = {"object", "ABC", "Generic", "Protocol"}
"""Bases that bring no names of their own."""


class Program:
    """Several trees by the package at their top, e.g. ``{"vllm": tree}``.

    What the code keeps for another vLLM than the one among them is not there. ``beneath`` holds those of
    the trees that build on none of the others: their files are read there, once for many programs.
    """

    def __init__(self, trees: Mapping[str, SourceTree], beneath: Program | None = None) -> None:
        self.trees = dict(trees)
        self._beneath = beneath
        self.vllm = version_of(self.trees["vllm"].version) if "vllm" in self.trees else None
        self._files: dict[str, File | None] = {}
        self._folders: dict[str, frozenset[str]] = {}
        self._paths: dict[str, list[str]] = {}
        self._texts: dict[str, str] = {}
        self._modules: dict[str, str | None] = {}
        self._holding: dict[tuple[str, str], list[str]] = {}

    def judges(self, module: str) -> bool:
        """Whether a module would be in one of the trees, so that its absence means something."""
        return module.partition(".")[0] in self.trees

    def file(self, path: str) -> File | None:
        """The parsed file at ``path``; None when it is not there or not Python."""
        if path not in self._files:
            below = self._beneath and path.partition("/")[0] in self._beneath.trees
            self._files[path] = self._beneath.file(path) if self._beneath and below else self._read(path)
        return self._files[path]

    def module(self, name: str) -> File | None:
        """The file of a module, or of a package's ``__init__``; None when there is none that is Python."""
        path = self._path(name)
        return self.file(path) if path else None

    def text_of(self, module: str) -> str:
        """The text of a module's file, empty where there is none."""
        path = self._path(module)
        return self.text(path) if path else ""

    def has_module(self, name: str) -> bool:
        """Whether there is such a module or package, one without ``__init__.py`` included."""
        return self._path(name) is not None or name.replace(".", "/") in self._folders_of(
            name.partition(".")[0]
        )

    def paths(self, package: str) -> list[str]:
        """The Python files of a package."""
        if package not in self._paths:
            tree = self.trees.get(package)
            self._paths[package] = [p for p in tree.list(package) if p.endswith(".py")] if tree else []
        return self._paths[package]

    def text(self, path: str) -> str:
        """The text of a file, empty for one that cannot be read."""
        package = path.partition("/")[0]
        if self._beneath and package in self._beneath.trees:
            return self._beneath.text(path)
        if path not in self._texts:
            try:
                self._texts[path] = self.trees[package].read(path)
            except BadInput:
                self._texts[path] = ""
        return self._texts[path]

    def holding(self, package: str, word: str) -> list[str]:
        """The files of a package that hold ``word``, as a part of another one too."""
        if self._beneath and package in self._beneath.trees:
            return self._beneath.holding(package, word)
        if (package, word) not in self._holding:
            found = self.paths(package)
            if found and word:
                found = sorted({*found} & {*self.words(package).holding(word)})
            if not word.isidentifier():  # a part of one word is told by the words alone
                found = [path for path in found if word in self.text(path)]
            self._holding[package, word] = found
        return self._holding[package, word]

    def words(self, package: str) -> Words:
        """Which files of a package hold a word."""
        return words_of(self.trees[package])

    def imported(self, item: Import) -> Symbol | None:
        """What an import binds; None when the trees certainly do not have it."""
        if not self.judges(item.module):
            return UNKNOWN
        if item.name is None:
            name = item.module if item.asname else item.module.partition(".")[0]
            return ModuleSymbol(name) if self.has_module(item.module) else None
        return self.lookup(item.module, item.name)

    def lookup(self, module: str, name: str, hops: int = _HOPS) -> Symbol | None:
        """What ``module.name`` stands for, through re-exports; None when it certainly is not there."""
        if not self.judges(module):
            return UNKNOWN
        file = self.module(module)
        if file is not None and hops:
            found = self._in_file(file, name, hops)
            if found is not None:
                return found
        if self.has_module(f"{module}.{name}"):
            return ModuleSymbol(f"{module}.{name}")
        if file is None:
            # A file that is not Python tells nothing.
            return UNKNOWN if self._path(module) or (self.has_module(module) and not hops) else None
        return UNKNOWN if file.may_make(name) else None

    def files(self, prefix: str) -> Iterator[File]:
        """The Python files below a folder."""
        tree = self.trees.get(prefix.partition("/")[0])
        for path in tree.list(prefix) if tree else []:
            if path.endswith(".py") and (file := self.file(path)):
                yield file

    def find_class(self, path: str, name: str) -> ClassSymbol | None:
        """The class ``name`` of the file at ``path``."""
        file = self.file(path)
        return file.classes.get(name) if file else None

    def _path(self, module: str) -> str | None:
        """The path of a module, or of a package's ``__init__``."""
        if module not in self._modules:
            tree, folder = self.trees.get(module.partition(".")[0]), module.replace(".", "/")
            files = (f"{folder}.py", f"{folder}/__init__.py")
            self._modules[module] = next((path for path in files if tree and tree.exists(path)), None)
        return self._modules[module]

    def _in_file(self, file: File, name: str, hops: int) -> Symbol | None:
        if name in file.classes:
            return file.classes[name]
        if name in file.functions:
            return file.functions[name]
        for item in file.imports.get(name, []):
            found = self._follow(item, hops)
            if found is not None:
                return found
        if name in file.values:
            return ValueSymbol(file, file.values[name])
        return file.by_star(name, hops)

    def _follow(self, item: Import, hops: int) -> Symbol | None:
        if item.name is None or not self.judges(item.module):
            return self.imported(item)
        return self.lookup(item.module, item.name, hops - 1)

    def _folders_of(self, top: str) -> frozenset[str]:
        """All folders of a tree that hold Python files, at any depth."""
        if top not in self._folders:
            paths = self.trees[top].list(top) if top in self.trees else []
            self._folders[top] = frozenset(
                "/".join(parts[:count])
                for path in paths
                if path.endswith((".py", ".so", ".pyi"))
                for parts in [path.split("/")]
                for count in range(1, len(parts))
            )
        return self._folders[top]

    def _read(self, path: str) -> File | None:
        tree = self.trees.get(path.partition("/")[0])
        if tree is None or not tree.exists(path):
            return None
        try:
            source = self._texts[path] = self._texts.get(path) or tree.read(path)
            parsed = parse_module(source).tree
            if self.vllm and may_guard(source):
                parsed = without_dead(parsed, self.vllm)
        except (BadInput, SyntaxError, ValueError):
            return None
        return File(path.partition("/")[0].replace("_", "-"), path, source, parsed, self)


def _assigned_on_self(method: Function) -> Iterator[tuple[str, ast.stmt]]:
    """The attributes that a method assigns on its first parameter, nested functions included."""
    first = next((arg.arg for arg in places_of(method.args)), None)
    if first is None:
        return
    for node in _statements(method):
        for target in _targets(node):
            for inner in walk(target):
                stored = isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)
                if stored and isinstance(inner.value, ast.Name) and inner.value.id == first:
                    yield inner.attr, node


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements below a node; no expression is walked, which most of a tree is."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from _statements(child)


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        return [node.target]
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [node.target]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [item.optional_vars for item in node.items if item.optional_vars]
    return []


def _plain_base(base: ast.expr) -> ast.expr:
    """A base without its type arguments."""
    return base.value if isinstance(base, ast.Subscript) else base


def _c3(sequences: list[list[ClassSymbol]]) -> list[ClassSymbol]:
    """Merge the parents' orders; where Python would refuse, the first that is left comes next."""
    merged: list[ClassSymbol] = []
    left = [list(sequence) for sequence in sequences if sequence]
    while left:
        heads = [sequence[0] for sequence in left]
        good = (head for head in heads if not any(head in sequence[1:] for sequence in left))
        chosen = next(good, heads[0])
        merged.append(chosen)
        left = [rest for sequence in left if (rest := [cls for cls in sequence if cls is not chosen])]
    return merged
