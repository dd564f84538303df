"""The runners' structure as a document: the drawn inheritance, and what it tells of a method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from audit_kit import make_world

from npu_upgrade.lineage.catalogue.block import (
    Ancestry,
    Block,
    Catalogue,
    Listing,
    Method,
    drawn,
    runner_ancestries,
)
from npu_upgrade.lineage.catalogue.reference import render_structure as render

FILES = {
    "vllm/v1/worker/gpu_model_runner.py": "class GPUModelRunner:\n    pass\n",
    "vllm_ascend/worker/model_runner_v1.py": (
        "from vllm.v1.worker.gpu_model_runner import GPUModelRunner\n"
        "class NPUModelRunner(GPUModelRunner):\n    pass\n"
    ),
    "vllm_omni/worker/gpu_model_runner.py": (
        "from vllm.v1.worker.gpu_model_runner import GPUModelRunner\n"
        "class OmniGPUModelRunner(GPUModelRunner):\n    pass\n"
    ),
    "vllm_omni/platforms/npu/worker/npu_model_runner.py": (
        "import abc\n"
        "from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner\n"
        "from vllm_ascend.worker.model_runner_v1 import NPUModelRunner\n"
        "class OmniNPUModelRunner(OmniGPUModelRunner, NPUModelRunner, abc.ABC):\n    pass\n"
    ),
}


def block(id: str, purpose: str, lines: int, kind: str = "added") -> Block:
    return Block(id, kind, 1, lines, 1, lines, 0, "outside", lines, "a call", "calls `x`", purpose=purpose)


def page(*methods: Method) -> str:
    return render(Catalogue({"vllm-omni": "pypi:vllm-omni==9.9"}, (Listing("npu", "a/runner.py", methods),)))


def test_inheritance_is_read_and_drawn(tmp_path: Path) -> None:
    world = make_world(tmp_path, FILES)
    found = {one.name: one for one in runner_ancestries(world.program, world.side.runners)}
    npu, gpu = found["OmniNPUModelRunner"], found["OmniGPUModelRunner"]
    assert npu.mro == ("OmniNPUModelRunner", "OmniGPUModelRunner", "NPUModelRunner", "GPUModelRunner")
    assert [line.split()[:3] for line in drawn(npu)] == [
        ["OmniNPUModelRunner", "vllm_omni/platforms/npu/worker/npu_model_runner.py"],
        ["├─", "OmniGPUModelRunner", "vllm_omni/worker/gpu_model_runner.py"],
        ["│", "└─", "GPUModelRunner"],
        ["└─", "NPUModelRunner", "vllm_ascend/worker/model_runner_v1.py"],
        ["└─", "GPUModelRunner", "(above)"],
    ]
    assert gpu.mro == ("OmniGPUModelRunner", "GPUModelRunner")


def test_the_drawing_and_the_order_stand_in_the_page() -> None:
    base = Ancestry("Base", "b.py", (), ("Base",))
    one = Ancestry("Runner", "a.py", (base,), ("Runner", "Base"))
    text = render(Catalogue({}, (), (one,)))
    assert "```\nRunner   a.py\n└─ Base  b.py\n```\n\nLooked up: Runner → Base.\n" in text


def test_the_largest_blocks_of_a_method_are_told_in_their_order() -> None:
    blocks = [block(str(n), f"Does {n}.", lines) for n, lines in enumerate([2, 9, 1, 8, 7, 6])]
    method = Method("Runner.run", 1, 40, "up.py:Up.run", "1.0", True, tuple(blocks))
    expected = (
        "| `Runner.run` | a copy of `Up.run` of 1.0, 6 blocks | Does 1. Does 3. Does 4. Does 5. (2 more) |"
    )
    assert expected in page(method)


def test_what_a_method_is() -> None:
    own = Method("Runner.talk", 1, 9, "", "", False, (block("a", "Talks | much.", 3, "own"),))
    override = replace(own, name="Runner.load", blocks=(block("b", "Loads.", 3, "override"),))
    assert "| `Runner.talk` | omni's own | Talks \\| much. |" in page(own, override)
    assert "| `Runner.load` | an override of its own | Loads. |" in page(own, override)
