"""All that an emulated run of a triple needs: interpreter, native parts, variables and packages."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path

from npu_upgrade.environments.store import EnvSpec, ensure
from npu_upgrade.gates.emulation.catalogue import EMULATOR
from npu_upgrade.gates.emulation.packages import emulator_info, kept, materialise
from npu_upgrade.gates.emulation.process import import_once, runner_module
from npu_upgrade.gates.emulation.requirements import check_python, environment_spec
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.tree import SourceTree

_TOOLS = {"g++": "g++", "nm": "binutils"}  # command -> Debian package
_PLATFORM = ("Linux", "x86_64")


def check_machine() -> None:
    """Raise :class:`Blocked` naming what this machine lacks for the emulator.

    The disk is checked where something is made, with what that needs.
    """
    here = (platform.system(), platform.machine())
    if here != _PLATFORM:
        raise Blocked(
            f"the emulator does not run on {' '.join(here)}",
            expected="Linux on x86-64; on aarch64 torch brings no Triton, which the emulator imports",
            try_="run this gate on such a machine (a container will do); the other gates run here",
        )
    if sys.implementation.name != "cpython":
        raise Blocked(
            f"torch-npu has no wheels for {sys.implementation.name}",
            expected="CPython",
            try_="start the command with python3",
        )
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        packages = " ".join(_TOOLS[tool] for tool in missing)
        raise Blocked(
            f"the emulator's native parts need {' and '.join(missing)}, not found on PATH",
            expected="a C++17 compiler and nm",
            try_=f"apt install {packages} (Debian, Ubuntu), dnf install gcc-c++ binutils (Fedora)",
        )


def native_parts(python: Path) -> Path:
    """The folder with the native parts for the torch and torch-npu of an environment, built once.

    Raises :class:`Blocked` with the compiler's text when they cannot be built.
    """
    digest = sha256(json.dumps(_made_from(python), sort_keys=True))[:16]
    return kept(cache_root().absolute() / "emulation" / "native" / digest, lambda into: _build(python, into))


def _made_from(python: Path) -> dict[str, str]:
    """All that decides what gets built."""
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    versions = {found.name: found.version for found in distributions(path=[str(packages)])}
    sources = [EMULATOR / "npu_emulator" / "build.py", *sorted((EMULATOR / "npu_emulator/native").iterdir())]
    content = b"".join(path.read_bytes() for path in sources if path.is_file())
    return {
        "torch": versions["torch"],
        "torch-npu": versions.get("torch-npu") or versions["torch_npu"],
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "sources": sha256(content),
    }


def _build(python: Path, into: Path) -> None:
    say("building the emulator's native parts (about 30 s, once)")
    done = subprocess.run(
        [str(python), "-P", "-m", "npu_emulator.build", str(into)],
        env=os.environ | {"PYTHONPATH": str(EMULATOR), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        tail = "\n    ".join(done.stderr.strip().splitlines()[-14:])
        raise Blocked(
            f"the emulator's native parts cannot be built (exit {done.returncode}):\n    {tail}",
            expected="g++ with C++17, and torch and torch-npu as their wheels are",
            try_=f"another g++ (11 or newer), or {upgrade('env', 'prune', '--all').short}",
        )


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

    @property
    def name(self) -> str:
        """The Python environment's, which carries a hash of what was to be installed."""
        return self.python.parents[1].name

    def path(self, tree_path: str) -> Path:
        """Where the file ``vllm_omni/...`` of a tree is in this environment."""
        return self.packages[tree_path.partition("/")[0]] / tree_path

    def tree_path(self, path: str | Path) -> str:
        """The path in its tree of a file of this environment; ValueError for a file that is in no tree."""
        for folder in self.packages.values():
            if Path(path).is_relative_to(folder):
                return Path(path).relative_to(folder).as_posix()
        raise ValueError(f"{path} is in none of the packages")


def packages_of(omni: SourceTree | None, ascend: SourceTree, vllm: SourceTree) -> tuple[EnvSpec, Environment]:
    """The packages as folders, and which Python they are to run with; it is not made, so nothing runs yet.

    Raises :class:`BadInput` for trees that cannot be combined.
    """
    spec = environment_spec(omni, ascend, vllm)
    trees = {"vllm": vllm, "vllm_ascend": ascend} | ({"vllm_omni": omni} if omni else {})
    return spec, Environment(spec.python, {}, {top: materialise(tree, top) for top, tree in trees.items()})


def prepare(omni: SourceTree | None, ascend: SourceTree, vllm: SourceTree) -> Environment:
    """Make, or find in the cache, all that an emulated run of these trees needs.

    Raises :class:`BadInput` for trees that cannot be combined, :class:`Blocked` for what the machine, the
    disk or the network lacks. What was made before is not made again.
    """
    check_machine()
    spec, found = packages_of(omni, ascend, vllm)
    check_python(spec)
    python = ensure(spec)
    variables = _variables(found.packages, native_parts(python))
    import_once(python, variables, found.packages, lambda: runner_module(ascend, vllm))
    return replace(found, variables=variables)


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
        "NPU_EMULATOR_PACKAGES": os.pathsep.join(map(str, packages.values())),
        "NPU_EMULATOR_MEMORY_MB": str(MEMORY_MB),
        "TRITON_INTERPRET": "1",
        "OMP_NUM_THREADS": "1",  # tiny tensors: more threads only wait for each other
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "PYTHONPATH": os.pathsep.join(map(str, own)),
        "PYTHONPYCACHEPREFIX": str(cache / "pycache"),
        # what it keeps of a model's class has no name of the release, and a class of another one replaces it
        "VLLM_CACHE_ROOT": str(cache / "vllm" / packages["vllm"].name),
        "VLLM_DISABLE_COMPILE_CACHE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",  # xgrammar's; for torch 2.9 it compiles one at import, minutes
        "HF_HUB_OFFLINE": "1",
    }
