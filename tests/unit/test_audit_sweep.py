"""Which mutations a sweep draws from: each leaves a Python file with one place changed."""

from __future__ import annotations

import ast

from lineage_kit import RUNNERS

from bench.audit_sweep import KINDS, mutations
from bench.edits import edited
from npu_upgrade.sources.tree import SourceTree

NPU = """
from vllm.harbour import Crane
from vllm_ascend.worker import NPUModelRunner


class {name}(NPUModelRunner):
    def lift(self, load, fast=False):
        hook, rope = self.find(load)
        if self.ready and load:
            self.note(load, loud=True)
        return Crane(load, kind=self.kind)

    def own(self):
        pass
"""
GPU = """
class {name}:
    def lift(self, load):
        if self.ready and load:
            self.note(load, loud=False)
        return Crane(load, kind="gpu", size=1)
"""


def tree() -> SourceTree:
    files = {runner.path: NPU.format(name=runner.class_name) for runner in RUNNERS}
    files |= {runner.gpu_path: GPU.format(name=runner.gpu_class) for runner in RUNNERS}
    return SourceTree(
        "dir:/x",
        "dir:/x",
        _has=files.__contains__,
        _bytes=lambda path: files[path].encode(),
        _paths=lambda prefix: sorted(files),
    )


def test_every_kind_of_mutation_is_drawn_and_applies() -> None:
    omni = tree()
    found = list(mutations(omni))
    assert {kind for kind, _ in found} == set(KINDS)
    for _, edit in found:
        after = edited(omni, [edit]).read(edit["path"])
        assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(omni.read(edit["path"])))
