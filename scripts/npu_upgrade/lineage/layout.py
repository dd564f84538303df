"""Where vllm-omni keeps its runners, and what each NPU runner corresponds to.

Only paths and class names of the runners themselves are written down here; everything
else (the upstream module and class, methods, imports) is read from the trees at hand.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from npu_upgrade.code.module import Module, parse_module
from npu_upgrade.code.names import all_imports
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.tree import SourceTree
from npu_upgrade.threeway.conflict_text import marker_rows

NPU_WORKER = "vllm_omni/platforms/npu/worker"
GPU_WORKER = "vllm_omni/worker"


@dataclass(frozen=True, slots=True)
class Runner:
    """One NPU runner file with its class, and the GPU file and class it mirrors."""

    kind: str
    path: str
    class_name: str
    gpu_path: str
    gpu_class: str


RUNNERS = (
    Runner(
        "base",
        f"{NPU_WORKER}/npu_model_runner.py",
        "OmniNPUModelRunner",
        f"{GPU_WORKER}/gpu_model_runner.py",
        "OmniGPUModelRunner",
    ),
    Runner(
        "ar",
        f"{NPU_WORKER}/npu_ar_model_runner.py",
        "NPUARModelRunner",
        f"{GPU_WORKER}/gpu_ar_model_runner.py",
        "GPUARModelRunner",
    ),
    Runner(
        "generation",
        f"{NPU_WORKER}/npu_generation_model_runner.py",
        "NPUGenerationModelRunner",
        f"{GPU_WORKER}/gpu_generation_model_runner.py",
        "GPUGenerationModelRunner",
    ),
)


@dataclass(frozen=True, slots=True)
class Upstream:
    """The vllm-ascend runner that the NPU runners build on, read from their imports."""

    path: str
    class_name: str

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".")


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


def check_omni(tree: SourceTree) -> None:
    """Raise :class:`BadInput` when ``tree`` does not hold the three NPU runners."""
    missing = [runner.path for runner in RUNNERS if not tree.exists(runner.path)]
    if missing:
        raise BadInput(
            f"{tree.spec} is not a vllm-omni tree with NPU runners: {missing[0]} is missing",
            expected="the root of a vllm-omni checkout or release that has " + NPU_WORKER,
            try_="pypi:vllm-omni==VERSION, git:PATH@REF or dir:PATH of vllm-omni itself",
        )


def find_upstream(omni: SourceTree) -> Upstream:
    """The vllm-ascend module and class among the bases of the NPU base runner."""
    runner = RUNNERS[0]
    module = read_runner(omni, runner.path)
    node = module.class_def(runner.class_name)
    imports = [item for item in all_imports(module.source) if item.module.startswith("vllm_ascend.")]
    for base in node.bases if node else []:
        found = [item for item in imports if item.name and item.bound == ast.unparse(base)]
        # A special device may put its own class under the same name; the usual one bears it itself.
        found.sort(key=lambda item: item.name != item.bound)
        if found:
            return Upstream(found[0].module.replace(".", "/") + ".py", str(found[0].name))
    raise BadInput(
        f"{runner.path} of {omni.spec} has no {runner.class_name} with a base class from vllm_ascend",
        expected=f"class {runner.class_name}(..., <runner imported from vllm_ascend>)",
        try_="name a version of vllm-omni whose NPU runners build on vllm-ascend",
    )
