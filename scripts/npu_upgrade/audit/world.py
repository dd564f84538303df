"""What is audited: a triple of trees, the files and classes in question, and their counterparts.

With vllm-omni the audit is about its NPU platform and workers; without, about vllm-ascend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from packaging.version import Version

from npu_upgrade.audit.copies import Copy, find_copies
from npu_upgrade.lineage.layout import GPU_WORKER, RUNNERS
from npu_upgrade.program.program import ClassSymbol, File, Program
from npu_upgrade.program.version_guards import version_of
from npu_upgrade.sources.tree import SourceTree

NPU_PLATFORM = "vllm_omni/platforms/npu"
ASCEND = "vllm_ascend"
# vllm-ascend's worker derives from the abstract worker only, and repeats the GPU worker.
_MIRRORED = {("vllm_ascend/worker/worker.py", "NPUWorker"): ("vllm/v1/worker/gpu_worker.py", "Worker")}


NO_TREE = SourceTree("none", "none")
"""In the place of a vllm that is not looked at: nothing is known of it."""


@dataclass(frozen=True)
class Triple:
    """The three trees of one audit; ``omni`` is None when vllm-ascend itself is audited."""

    omni: SourceTree | None
    ascend: SourceTree
    vllm: SourceTree

    def trees(self) -> dict[str, SourceTree]:
        """The trees by the package at their top."""
        found = {"vllm_ascend": self.ascend, "vllm": self.vllm, "vllm_omni": self.omni}
        return {package: tree for package, tree in found.items() if tree and tree is not NO_TREE}


@dataclass(frozen=True)
class Pair:
    """An NPU class and the class it mirrors.

    ``inherits`` tells that the NPU class derives from the other one (vllm-ascend's runner from
    vLLM's), so that what it does not override is not missing.
    """

    npu: ClassSymbol
    gpu: ClassSymbol
    inherits: bool


@dataclass
class World:
    """One triple with what the checks look at; ``old`` is the matched old triple, None without one."""

    triple: Triple
    old: World | None = None
    program: Program = field(init=False)

    def __post_init__(self) -> None:
        self.program = Program(self.triple.trees())

    @property
    def of_omni(self) -> bool:
        return self.triple.omni is not None

    @cached_property
    def vllm_version(self) -> Version | None:
        """The version of vLLM, by which branches on it are decided."""
        return version_of(self.triple.vllm.version)

    @cached_property
    def files(self) -> list[File]:
        """All audited files: vllm-omni's NPU platform, else all of vllm-ascend."""
        return list(self.program.files(NPU_PLATFORM if self.of_omni else ASCEND))

    @cached_property
    def worker_files(self) -> list[File]:
        """Those of the audited files that hold model runners and workers, special devices' included."""
        return [file for file in self.files if _of_workers(file.path)]

    @cached_property
    def classes(self) -> list[ClassSymbol]:
        """The classes of the worker files."""
        return [cls for file in self.worker_files for cls in file.classes.values()]

    @cached_property
    def concrete(self) -> list[ClassSymbol]:
        """The classes of the worker files that no other one of them derives from."""
        parents = {id(base) for cls in self.classes for base in cls.mro[1:]}
        return [cls for cls in self.classes if id(cls) not in parents]

    def nearest_common(self, runners: Sequence[ClassSymbol]) -> ClassSymbol:
        """The nearest class of the worker files that all these derive from, itself included."""
        shared = (base for base in runners[0].mro if base in self.classes)
        return next((base for base in shared if all(base in cls.mro for cls in runners)), runners[0])

    @cached_property
    def copies(self) -> list[Copy]:
        """The methods of the NPU runners that are copies of vllm-ascend's."""
        return find_copies(self.triple.omni, self.triple.ascend)

    @cached_property
    def pairs(self) -> list[Pair]:
        """The NPU classes with the classes they mirror, in the order of their files."""
        return list(self._omni_pairs() if self.of_omni else self._ascend_pairs())

    def _omni_pairs(self) -> Iterator[Pair]:
        by_runner = {(runner.path, runner.class_name): runner for runner in RUNNERS}
        for cls in self.classes:
            runner = by_runner.get((cls.file.path, cls.name))
            name = cls.file.path.rpartition("/")[2]
            path = runner.gpu_path if runner else f"{GPU_WORKER}/{name.replace('npu', 'gpu')}"
            gpu = self.program.find_class(
                path, runner.gpu_class if runner else cls.name.replace("NPU", "GPU")
            )
            if gpu and gpu is not cls:
                yield Pair(cls, gpu, gpu in cls.mro)

    def _ascend_pairs(self) -> Iterator[Pair]:
        for cls in self.classes:
            mirrored = _MIRRORED.get((cls.file.path, cls.name))
            gpu = self.program.find_class(*mirrored) if mirrored else None
            gpu = gpu or next((base for base in cls.mro[1:] if base.project == "vllm"), None)
            if gpu:
                yield Pair(cls, gpu, gpu in cls.mro)


def _of_workers(path: str) -> bool:
    return any(part.startswith(("worker", "model_runner")) for part in path.split("/"))
