"""Code of a vllm-omni release, taken from its files as it is: its models' samplers and its runners' calls.

Importing the package would take all that it requires; only the named methods are compiled, at run time.
"""

from __future__ import annotations

import ast
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

OMNI = "RUNNER_CHECKS_OMNI"  # the folder that holds the package vllm_omni

HUNYUAN = "vllm_omni/model_executor/models/hunyuan_image3/hunyuan_image3.py"
COSYVOICE = "vllm_omni/model_executor/models/cosyvoice3/cosyvoice3.py"
RUNNERS = {  # by platform: where its AR runner is, and the helpers that it inherits
    "cpu": ("vllm_omni/worker/gpu_ar_model_runner.py", "GPUARModelRunner"),
    "npu": ("vllm_omni/platforms/npu/worker/npu_ar_model_runner.py", "NPUARModelRunner"),
}
BASE = ("vllm_omni/worker/gpu_model_runner.py", "OmniGPUModelRunner")
HELPERS = "vllm_omni/worker/sampling_utils.py"
DUPLEX = "vllm_omni/model_executor/duplex_sampling.py"


def tree() -> Path:
    """The release's folder, which the environment names."""
    return Path(os.environ[OMNI])


def taken(path: str, class_name: str, names: tuple[str, ...], base: type, **more: Any) -> type:
    """A class with these methods of the release's class, in front of ``base``.

    Methods and attributes that it lacks are left out. ``more`` is what its file imports of vllm_omni.
    """
    module = ast.parse((tree() / path).read_text(encoding="utf-8"))
    found = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    body = [node for node in found.body if _defines(node) & set(names)]
    own = ast.ClassDef(
        class_name, [ast.Name("Base", ast.Load())], [], body or [ast.Pass()], [], type_params=[]
    )
    future = ast.parse("from __future__ import annotations").body
    namespace = {**_imported(module), **more, "Base": base, "__name__": f"released.{class_name}"}
    _run([*future, own], namespace, path)
    return namespace[class_name]


@cache
def helpers(path: str) -> ModuleType:
    """A module of the release that imports nothing of vllm_omni."""
    found = ModuleType(Path(path).stem)
    _run(ast.parse((tree() / path).read_text(encoding="utf-8")).body, vars(found), path)
    return found


def _run(body: list[ast.stmt], namespace: dict[str, Any], path: str) -> None:
    code = ast.fix_missing_locations(ast.Module(body, []))
    exec(compile(code, str(tree() / path), "exec"), namespace)


def _defines(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Assign):
        return {ast.unparse(target) for target in node.targets}
    if isinstance(node, ast.AnnAssign):
        return {ast.unparse(node.target)}
    return {node.name} if isinstance(node, ast.FunctionDef) else set()


def _imported(module: ast.Module) -> dict[str, Any]:
    """What the file's imports bring, but for those of packages that are not there."""
    found: dict[str, Any] = {}
    for node in module.body:
        if isinstance(node, ast.Import | ast.ImportFrom) and "vllm_omni" not in ast.unparse(node):
            try:
                _run([node], found, "imports")
            except ImportError:
                continue
    return found


def omni_runner(platform: str, base: type) -> type:
    """``base``, a stock runner's class, sampling as vllm-omni's AR runner of the platform does."""
    given = vars(helpers(HELPERS)) | {"logger": _Quiet()}
    names = ("_build_model_sampler_output_token_ids", "_sampling_metadata_for_model_sampler")
    shared = taken(DUPLEX, "DuplexSamplingRunnerMixin", ("_resolve_duplex_sampling_hook", *_DUPLEX), base)
    shared = taken(*BASE, names, shared, **given)
    return taken(*RUNNERS[platform], (*names, "_sample"), shared, **given)


_DUPLEX = ("_apply_duplex_sampling",)


class _Quiet:
    def warning_once(self, *args: Any) -> None:
        pass

    info_once = debug = warning_once
