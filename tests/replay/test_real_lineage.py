"""Real releases: the runners, a fourth one, another family and another downstream are found."""

from __future__ import annotations

from collections import Counter

import pytest

from known_runners import RUNNERS
from npu_upgrade.lineage.downstream import Downstream, omni_side
from npu_upgrade.lineage.inference import infer
from npu_upgrade.lineage.units import Relation, UnitLineage, read_units
from npu_upgrade.sources.tree import SourceTree, open_source, overlay

pytestmark = pytest.mark.network

FOURTH = """from vllm_ascend.worker.model_runner_v1 import NPUModelRunner


class NPUSongModelRunner(NPUModelRunner):
    def sing(self):
        return 1
"""


def release(project: str, version: str) -> SourceTree:
    return open_source(f"pypi:{project}=={version}")


def only(tree: SourceTree, package: str, *folders: str) -> SourceTree:
    """A tree without the files outside some folders of its package, which takes a minute less to read."""
    kept = tuple(f"{package}/{folder}/" for folder in folders)
    gone = [path for path in tree.list(package) if not path.startswith(kept) and path.count("/") > 1]
    return overlay(tree, dict.fromkeys(gone))


def related(side: Downstream) -> dict[str, list[UnitLineage]]:
    found: dict[str, list[UnitLineage]] = {}
    for unit in read_units(side):
        if unit.relation is not Relation.OWN:
            found.setdefault(unit.path, []).append(unit)
    return found


@pytest.mark.parametrize(
    ("version", "base", "copied"),
    [
        ("0.14.0", "0.14.0rc1", {"base": 3, "ar": 4, "generation": 3}),
        ("0.22.0", "0.19.1rc1", {"base": 2, "ar": 3, "generation": 2}),
        ("0.30.0", "0.26.0rc1", {"base": 3, "ar": 3, "generation": 2}),
    ],
)
def test_the_runners_of_a_release(version: str, base: str, copied: dict[str, int]) -> None:
    omni = release("vllm-omni", version)
    assert omni_side(omni).runners == RUNNERS
    found = infer(omni, "pypi:vllm-ascend")
    assert found.base
    assert found.base.label == base
    assert Counter(entry.runner for entry in found.copied) == copied


def test_a_fourth_runner_file() -> None:
    omni = release("vllm-omni", "0.30.0")
    path = "vllm_omni/platforms/npu/song/npu_song_model_runner.py"
    runners = {runner.kind: runner for runner in omni_side(overlay(omni, {path: FOURTH})).runners}
    assert list(runners) == ["base", "song", "ar", "generation"]
    assert (runners["song"].path, runners["song"].class_name) == (path, "NPUSongModelRunner")
    assert runners["song"].gpu_path == ""


def test_patches_and_overrides_outside_the_runners() -> None:
    trees = {"vllm_ascend": release("vllm-ascend", "0.30.0rc2"), "vllm": release("vllm", "0.30.0")}
    found = related(Downstream(release("vllm-omni", "0.32.0rc1"), trees))
    npu = "vllm_omni/platforms/npu"
    patched = {unit.upstream for unit in found[f"{npu}/attention/static_shape_decode.py"]}
    assert "vllm_ascend/compilation/acl_graph.py:ACLGraphWrapper.__call__" in patched
    assert found[f"{npu}/native_rejection_sampler.py"][0].relation is Relation.PATCH
    backend = {unit.relation for unit in found[f"{npu}/attention/static_shape_backend.py"]}
    assert Relation.OVERRIDE in backend
    workers = [unit for unit in found[f"{npu}/worker/npu_ar_worker.py"] if unit.kind == "class"]
    assert workers[0].upstream == "vllm_ascend/worker/worker.py:NPUWorker"


def test_the_second_family_of_runners_on_vllm() -> None:
    side = Downstream(
        only(release("vllm-omni", "0.32.0rc1"), "vllm_omni", "worker", "worker_v2", "platforms"),
        {"vllm": release("vllm", "0.30.0")},
    )
    assert {path for path in side.paths if "platforms/npu" in path} == set()
    second = {
        cls.file.path: cls.name
        for upstream, classes in side.families.items()
        for cls in classes
        if upstream.path == "vllm/v1/worker/gpu/model_runner.py"
    }
    folder = "vllm_omni/worker_v2"
    assert second == {
        f"{folder}/omni_model_runner.py": "OmniGPUModelRunner",
        f"{folder}/omni_ar_model_runner.py": "OmniARModelRunner",
        f"{folder}/omni_generation_model_runner.py": "OmniGenerationModelRunner",
    }
    assert "xpu" in {runner.path.split("/")[2] for runner in side.runners}


def test_vllm_ascend_as_a_downstream_of_vllm() -> None:
    ascend = only(release("vllm-ascend", "0.30.0rc2"), "vllm_ascend", "worker", "core", "patch", "ops")
    side = Downstream(ascend, {"vllm": release("vllm", "0.30.0")})
    assert side.upstream.path == "vllm/v1/worker/gpu_model_runner.py"
    assert (side.runners[0].path, side.runners[0].class_name) == (
        "vllm_ascend/worker/model_runner_v1.py",
        "NPUModelRunner",
    )
    found = related(side)
    worker = {unit.name: unit for unit in found["vllm_ascend/worker/worker.py"]}
    assert worker["NPUWorker"].mirror == "vllm/v1/worker/gpu_worker.py:Worker"
    scheduler = {unit.name: unit for unit in found["vllm_ascend/core/recompute_scheduler.py"]}
    assert scheduler["RecomputeScheduler.schedule"].relation is Relation.COPY
    balance = {unit.name: unit for unit in found["vllm_ascend/patch/platform/patch_balance_schedule.py"]}
    assert balance["BalanceScheduler"].patches == ("vllm/v1/core/sched/scheduler.py:Scheduler",)
    assert balance["BalanceScheduler.schedule"].relation is Relation.COPY
    assert any(path.startswith("vllm_ascend/ops/") for path in found)
    copies = [unit for units in found.values() for unit in units if unit.copied and unit.statements]
    assert len(copies) >= 100
