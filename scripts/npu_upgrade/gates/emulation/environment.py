"""Everything a process needs to run one triple on emulated CANN: interpreter, variables, packages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.environments.store import ensure
from npu_upgrade.gates.emulation.catalogue import EMULATOR
from npu_upgrade.gates.emulation.first_import import import_once, runner_module
from npu_upgrade.gates.emulation.machine import check_machine
from npu_upgrade.gates.emulation.native import native_parts
from npu_upgrade.gates.emulation.packages import emulator_info, materialise
from npu_upgrade.gates.emulation.requirements import check_python, environment_spec
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.sources.tree import SourceTree

MEMORY_MB = 640  # of the emulated device


@dataclass(frozen=True)
class Environment:
    """What a process is started with.

    ``variables`` come on top of the caller's PATH and HOME. ``packages`` maps vllm, vllm_ascend and, with
    vllm-omni, vllm_omni to the folder on PYTHONPATH that holds the package; its name carries a hash of the
    content.
    """

    python: Path
    variables: dict[str, str]
    packages: dict[str, Path]

    def path(self, tree_path: str) -> Path:
        """Where the file ``vllm_omni/...`` of a tree is in this environment."""
        return self.packages[tree_path.partition("/")[0]] / tree_path

    def tree_path(self, path: str | Path) -> str:
        """The path in its tree of a file of this environment; ValueError for a file that is in no tree."""
        for folder in self.packages.values():
            if Path(path).is_relative_to(folder):
                return Path(path).relative_to(folder).as_posix()
        raise ValueError(f"{path} is in none of the packages")


def prepare(omni: SourceTree | None, ascend: SourceTree, vllm: SourceTree) -> Environment:
    """Make, or find in the cache, all that an emulated run of these trees needs.

    Raises :class:`BadInput` for trees that cannot be combined, :class:`Blocked` for what the machine, the
    disk or the network lacks. What was made before is not made again.
    """
    check_machine()
    spec = environment_spec(omni, ascend, vllm)
    check_python(spec)
    trees = {"vllm": vllm, "vllm_ascend": ascend} | ({"vllm_omni": omni} if omni else {})
    packages = {top: materialise(tree, top) for top, tree in trees.items()}
    python = ensure(spec)
    variables = _variables(packages, native_parts(python))
    import_once(python, variables, packages, lambda: runner_module(ascend, vllm))
    return Environment(python, variables, packages)


def _variables(packages: dict[str, Path], native: Path) -> dict[str, str]:
    cache = cache_root().absolute() / "emulation"
    own = [EMULATOR, emulator_info(), *packages.values()]
    return {
        "ASCEND_HOME_PATH": str(native),
        "ASCEND_TOOLKIT_HOME": str(native),
        "ASCEND_OPP_PATH": str(native / "opp"),
        "LD_LIBRARY_PATH": str(native / "lib"),
        "NPU_EMULATOR_NATIVE": str(native),
        "NPU_EMULATOR_ASCEND_CSRC": str(packages["vllm_ascend"] / "csrc"),
        "NPU_EMULATOR_MEMORY_MB": str(MEMORY_MB),
        "TRITON_INTERPRET": "1",
        "OMP_NUM_THREADS": "1",  # tiny tensors: more threads only wait for each other
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "PYTHONPATH": os.pathsep.join(map(str, own)),
        "PYTHONPYCACHEPREFIX": str(cache / "pycache"),
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "VLLM_DISABLE_COMPILE_CACHE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",  # xgrammar's; for torch 2.9 it compiles one at import, minutes
        "HF_HUB_OFFLINE": "1",
    }
