"""The files of vllm-omni's NPU worker folder: what they import, and which classes derive from upstream's."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.code.definitions import every_import, functions, read_module
from npu_upgrade.code.exports import absolute, module_of
from npu_upgrade.code.module import Module
from npu_upgrade.code.names import Import
from npu_upgrade.code.signatures import Function
from npu_upgrade.sources.tree import SourceTree

_NPU_WORKER = "vllm_omni/platforms/npu/worker"
_RUNNER_PATHS = {f"{_NPU_WORKER}/npu_{kind}model_runner.py" for kind in ("", "ar_", "generation_")}


@dataclass(frozen=True)
class WorkerFile:
    """A file of the folder; ``imports`` are absolute, each with whether its failing is provided for."""

    path: str
    module: Module
    imports: Sequence[tuple[Import, bool]]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_runner(self) -> bool:
        return self.path in _RUNNER_PATHS

    @property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.module.tree.body if isinstance(node, ast.ClassDef)]

    def bases(self, node: ast.ClassDef) -> list[Import]:
        """Where the bases of a class of this file come from, those of the file itself included."""
        names = {ast.unparse(base) for base in node.bases}
        own = [Import(module_of(self.path), name) for name in sorted(names)]
        return own + [item for item, _ in self.imports if item.name and item.bound in names]


@dataclass(frozen=True)
class Family:
    """The omni classes that derive from one upstream class, the one that names it first."""

    upstream: Import
    path: str
    classes: Sequence[ast.ClassDef]

    def methods(self) -> Iterator[tuple[str, Function]]:
        """The methods of all classes, each with its class's name."""
        for owner in self.classes:
            yield from ((owner.name, node) for node in functions(owner).values())


def worker_paths(omni: SourceTree) -> list[str]:
    """The Python files of the NPU worker folder."""
    return [path for path in omni.list(_NPU_WORKER) if path.endswith(".py")]


def read_worker_file(omni: SourceTree, path: str, runner_module: str) -> WorkerFile | None:
    """One file; None when it is not Python.

    Imports of a runner file from ``runner_module`` are left out: the merge looks after them.
    """
    module = read_module(omni, path)
    if module is None:
        return None
    found = [(absolute(item, path), guarded) for item, guarded in every_import(module.tree)]
    runner = path in _RUNNER_PATHS
    return WorkerFile(
        path, module, [pair for pair in found if not (runner and pair[0].module == runner_module)]
    )


def families(files: Sequence[WorkerFile]) -> list[Family]:
    """The classes outside the runner files by the vllm_ascend class they derive from."""
    return [
        Family(item, file.path, [node, *_heirs(file, node, files)])
        for file in files
        if not file.is_runner
        for node in file.classes
        for item in file.bases(node)
        if item.module.startswith("vllm_ascend.")
    ]


def _heirs(file: WorkerFile, node: ast.ClassDef, files: Sequence[WorkerFile]) -> list[ast.ClassDef]:
    """The classes that derive from a class, over any number of steps."""
    known = {(module_of(file.path), node.name)}
    found: list[ast.ClassDef] = []
    size = 0
    while size < len(known):
        size = len(known)
        for other in files:
            for heir in other.classes:
                place = (module_of(other.path), heir.name)
                if place not in known and known & {(item.module, item.name) for item in other.bases(heir)}:
                    known.add(place)
                    found.append(heir)
    return found
