"""The side of a project that builds on an upstream: its files, classes and runners, read from the trees.

Which class of upstream's a class builds on is told by its own imports; which class of the other
side it mirrors by names without the words of devices. Nothing is listed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from npu_upgrade.code.conflict_text import marker_rows
from npu_upgrade.code.module import Module, parse_module
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.held import held
from npu_upgrade.lineage.dialect import DEVICE, neutral
from npu_upgrade.lineage.project import KNOWN, Project, project_of, words
from npu_upgrade.program.program import ClassSymbol, Program
from npu_upgrade.sources.tree import SourceTree


@dataclass(frozen=True, slots=True)
class Upstream:
    """A class of upstream's and the file it is defined in."""

    path: str
    class_name: str

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".")

    @property
    def package(self) -> str:
        return self.path.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Runner:
    """A file with a class (or several) on upstream's runner, and the file and class it mirrors.

    ``kind`` is ``base`` for the class that the others derive from, else what its path adds to
    that one's; ``class_name`` is the first of ``classes``. The last two are empty without a mirror.
    """

    kind: str
    path: str
    class_name: str
    gpu_path: str
    gpu_class: str
    classes: tuple[str, ...] = ()

    def upstream_name(self, owner: str, name: str, upstream: Upstream) -> str:
        """What the unit ``name`` of a class of the file is compared with."""
        own = owner in (self.classes or (self.class_name,))
        return f"{upstream.class_name}.{name}" if own else f"{owner}.{name}" if owner else name


class Downstream:
    """A tree with the upstreams at hand, by package; without them imports are taken at their word."""

    def __init__(
        self,
        tree: SourceTree,
        upstreams: Mapping[str, SourceTree] | None = None,
        program: Program | None = None,
    ) -> None:
        self.tree = tree
        self.upstreams = dict(upstreams or {})
        self.project: Project = project_of(tree, tuple(self.upstreams))
        self.program = program or Program({self.project.package: tree} | self.upstreams)

    @staticmethod
    @held
    def within(program: Program) -> Downstream:
        """The known downstream among the trees of a program, above the others; else its first tree.

        A program of upstreams alone, such as a vllm that several worlds share, has none (:func:`is_within`).
        """
        known = (project.package for project in KNOWN if project.package in program.trees)
        package = next(known, next(iter(program.trees)))
        upstreams = {name: tree for name, tree in program.trees.items() if name != package}
        return Downstream(program.trees[package], upstreams, program)

    @cached_property
    def paths(self) -> list[str]:
        """The files of the side in question."""
        return [path for path in self.tree.list(self.project.package) if self.project.holds(path)]

    @cached_property
    def classes(self) -> list[ClassSymbol]:
        """The classes of the side in question, in the order of their files."""
        files = (self.program.file(path) for path in self.paths)
        return [cls for file in files if file for cls in file.classes.values()]

    @cached_property
    def unread(self) -> list[str]:
        """The files of the side that are not Python."""
        return [path for path in self.paths if self.program.file(path) is None]

    def is_own(self, cls: ClassSymbol) -> bool:
        return cls.file.path.startswith(f"{self.project.package}/")

    def upstream_of(self, cls: ClassSymbol) -> Upstream | None:
        """The class of upstream's that a class builds on, of the nearest upstream that has one."""
        found = (self._on(cls, package) for package in self.project.upstreams)
        return next(filter(None, found), None)

    def _on(self, cls: ClassSymbol, package: str) -> Upstream | None:
        for own in (one for one in cls.mro if self.is_own(one)):
            for node, base in zip(own.node.bases, own.bases, strict=True):
                if isinstance(base, ClassSymbol):
                    if base.file.path.startswith(f"{package}/"):
                        return Upstream(base.file.path, base.name)
                elif found := _imported(own, node, package):
                    return found
        return None

    @cached_property
    def families(self) -> dict[Upstream, list[ClassSymbol]]:
        """The classes of the side by the class of upstream's they build on."""
        found: dict[Upstream, list[ClassSymbol]] = {}
        for cls in self.classes:
            if upstream := self.upstream_of(cls):
                found.setdefault(upstream, []).append(cls)
        return found

    @cached_property
    def upstream(self) -> Upstream:
        """The runner of upstream's: the class that the most code builds on, among runners if there are any.

        Raises :class:`BadInput` when no class of the side builds on the nearest upstream.
        """
        nearest = self.project.upstreams[0] if self.project.upstreams else ""
        sizes = {
            upstream: (upstream.class_name.endswith("ModelRunner"), sum(map(_lines, classes)))
            for upstream, classes in self.families.items()
            if upstream.package == nearest
        }
        if not sizes:
            for path in self.unread:
                read_runner(self.tree, path)
            name = self.project.name
            where = f"file with {self.project.device} in its path" if self.project.device else "file"
            raise BadInput(
                f"{self.tree.spec} is not a {name} tree with classes on {nearest}: "
                f"no {where} has a class with a base from {nearest}",
                expected=f"the root of a checkout or release of {name}",
                try_=f"pypi:{name}==VERSION, git:PATH@REF or dir:PATH of {name} itself",
            )
        return max(sizes, key=lambda upstream: sizes[upstream])

    @cached_property
    def runners(self) -> tuple[Runner, ...]:
        """The files with classes on upstream's runner, the one that most others derive from first.

        Raises :class:`BadInput` when there is none, or one beside them is not Python.
        """
        family = self.families[self.upstream]
        depth = {id(cls): sum(one in cls.mro for one in family) for cls in family}
        below = {id(cls): sum(cls in one.mro for one in family) for cls in family}
        by_file: dict[str, list[ClassSymbol]] = {}
        for cls in sorted(family, key=lambda c: (depth[id(c)], -below[id(c)], c.file.path, -_lines(c))):
            by_file.setdefault(cls.file.path, []).append(cls)
        folders = {path.rpartition("/")[0] for path in by_file}
        for path in self.unread:
            if path.rpartition("/")[0] in folders:
                read_runner(self.tree, path)  # says what is wrong with it
        base = words(next(iter(by_file)).removesuffix(".py"))
        found: list[Runner] = []
        for path, classes in by_file.items():
            kind = "-".join(word for word in words(path.removesuffix(".py")) if word not in base) or "base"
            known = {runner.kind for runner in found}
            kind = kind if kind not in known else f"{kind}-{classes[0].name}"
            mirror = self.mirror(classes[0])
            broken = (other for other in self.mirrored_files(path) if self.program.file(other) is None)
            place = (mirror.file.path, mirror.name) if mirror else (next(broken, ""), "")
            found.append(Runner(kind, path, classes[0].name, *place, tuple(cls.name for cls in classes)))
        return tuple(found)

    @property
    def runner_files(self) -> list[str]:
        """The files of the folders that the runners are in: workers, and what is beside them."""
        folders = {runner.path.rpartition("/")[0] for runner in self.runners}
        return [path for path in self.paths if path.rpartition("/")[0] in folders]

    @property
    def upstream_files(self) -> list[str]:
        """The file of upstream's runner, and those beside it that classes of the side build on."""
        folder = self.upstream.path.rpartition("/")[0]
        return sorted({one.path for one in self.families if one.path.rpartition("/")[0] == folder})

    def mirror(self, cls: ClassSymbol) -> ClassSymbol | None:
        """The class of the main device's side that a class has the tasks of; None without one.

        It has the same name but for the words of devices. In a project that is all for one
        device, it is the base of that name; where no base has it, a class of the upstream.
        """
        name = self._neutral(cls.name)
        if not self.project.device:
            for base in cls.mro[1:]:
                if not self.is_own(base) and self._neutral(base.name) == name:
                    return base
        for file in filter(None, map(self.program.file, self.mirrored_files(cls.file.path))):
            same = [
                one for one in file.classes.values() if self._neutral(one.name) == name and one is not cls
            ]
            if same:
                return same[0]
        return None

    def mirrored_files(self, path: str) -> list[str]:
        """The files of the same name, but for the words of devices, on the main device's side."""
        folder, _, name = path.rpartition("/")
        wanted = self._neutral(name.removesuffix(".py"))
        parts = [self._neutral(part) for part in folder.split("/")]
        found = [other for other in self._main_files.get(wanted, []) if other != path]

        def near(other: str) -> tuple[int, int, str]:
            theirs = [self._neutral(part) for part in other.split("/")[:-1]]
            count = next(
                (n for n, (a, b) in enumerate(zip(parts[::-1], theirs[::-1], strict=False)) if a != b),
                min(len(parts), len(theirs)),
            )
            return -count, len(theirs), other

        return sorted(found, key=near)

    @cached_property
    def _main_files(self) -> dict[str, list[str]]:
        """The files that a file of the device can mirror, by their neutral names."""
        own = {self.project.package: self.tree}
        found: dict[str, list[str]] = {}
        for package, tree in (own if self.project.device else self.upstreams).items():
            for path in tree.list(package):
                if path.endswith(".py") and not self.project.is_device(path):
                    name = path.rpartition("/")[2].removesuffix(".py")
                    found.setdefault(self._neutral(name), []).append(path)
        return found

    def _neutral(self, name: str) -> str:
        return neutral(name, self.project.device or DEVICE)

    @cached_property
    def class_names(self) -> dict[str, str]:
        """The classes that the runners mirror, and the classes of the runners; none without runners."""
        if not self.families:
            return {}
        return {runner.gpu_class: runner.class_name for runner in self.runners if runner.gpu_class}


def is_within(program: Program) -> bool:
    """Whether a downstream is among the trees of a program."""
    return any(package != "vllm" for package in program.trees)


def class_names_in(program: Program) -> dict[str, str]:
    """The :attr:`Downstream.class_names` of the downstream within a program, none where it has none."""
    return Downstream.within(program).class_names if is_within(program) else {}


def omni_side(tree: SourceTree, upstreams: Mapping[str, SourceTree] | None = None) -> Downstream:
    """The NPU side of a vllm-omni; :class:`BadInput` for the tree of another project."""
    side = Downstream(tree, upstreams)
    if side.project.package != KNOWN[0].package:
        raise BadInput(
            f"{tree.spec} is not a {KNOWN[0].name} tree with NPU runners: it holds {side.project.package}",
            expected=f"the root of a checkout or release of {KNOWN[0].name}",
            try_=f"pypi:{KNOWN[0].name}==VERSION, git:PATH@REF or dir:PATH of {KNOWN[0].name} itself",
        )
    return side


def read_runner(tree: SourceTree, path: str) -> Module:
    """Parse one runner file; refuses conflict markers and files that are not Python."""
    source = tree.read(path)
    if marker_rows(source):
        raise BadInput(
            f"{path} of {tree.spec} holds conflict markers",
            expected="a runner file without an unfinished merge in it",
            try_="resolve the conflict, or name the commit before it",
        )
    try:
        return parse_module(source)
    except SyntaxError as error:
        raise BadInput(
            f"{path} of {tree.spec} is not Python: line {error.lineno}: {error.msg}",
            expected="a runner file that parses",
            try_="repair that line, or name another version",
        ) from error


def _imported(cls: ClassSymbol, base: ast.expr, package: str) -> Upstream | None:
    """The class that an import names as a base, where the package is not at hand or lacks it."""
    items = [item for item in cls.file.imports.get(ast.unparse(base), []) if item.name]
    found = [item for item in items if item.module.partition(".")[0] == package]
    # A special device may put its own class under the same name; the usual one bears it itself.
    found.sort(key=lambda item: item.name != item.bound)
    return Upstream(found[0].module.replace(".", "/") + ".py", str(found[0].name)) if found else None


def _lines(cls: ClassSymbol) -> int:
    return (cls.node.end_lineno or cls.node.lineno) - cls.node.lineno + 1
