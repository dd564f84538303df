"""Which packages an emulated run of three trees needs: the Python environment's spec.

vLLM's bounds count, then vllm-ascend's pins of the torch family on top of them; what is only for a build
or for another device is left out. The trees' own packages are not installed but put on PYTHONPATH.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from email.parser import HeaderParser
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from npu_upgrade.environments.store import EnvSpec, is_ready
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.index import release
from npu_upgrade.sources.tree import SourceTree

NAME = "emulation"
SIZE_MB = 8500
DURATION = "about 1 min with a warm package cache, else some GB of downloads"
_COMMON, _PROJECT = "requirements/common.txt", "pyproject.toml"
_TORCH = ("torch", "torch-npu", "torchvision", "torchaudio")
_TORCH_MAJOR, _VISION_AHEAD = 2, 15  # torchvision 0.25 is for torch 2.10
# where vllm-ascend's bounds win over vLLM's: what its binaries were built against
_BOUND_BY_ASCEND = {*_TORCH, "transformers", "numpy", "opencv-python-headless"}
_BUILD_ONLY = {
    "cmake", "ninja", "packaging", "pandas-stubs", "pip", "pybind11", "setuptools", "setuptools-rust",
    "setuptools-scm", "wheel",
}  # fmt: skip
# for an NPU or a GPU only; the emulator stands in for those that get imported on an NPU
_DEVICE_ONLY = {
    "apache-tvm-ffi", "arctic-inference", "bitsandbytes", "cosmos-guardrail", "cupy-cuda12x", "fa3-fwd",
    "fastokens", "fastsafetensors", "flash-attn", "flashinfer-cubin", "flashinfer-python", "kernels",
    "memcache-hybrid", "memfabric-hybrid", "nvidia-cutlass-dsl", "onnxruntime-gpu", "quack-kernels",
    "sageattention", "tilelang", "tokenspeed-mla", "torchcodec", "triton-ascend", "xformers",
}  # fmt: skip
_UNDECLARED = {"step-audio2"}  # models import it, and only the extra for developers declares it
_OURS = ("coverage>=7.6,<8", "pytest>=9,<10")
_WITH_PKG_RESOURCES = "setuptools<81"  # torchair of torch-npu 2.9 imports it and declares nothing


def environment_spec(omni: SourceTree | None, ascend: SourceTree, vllm: SourceTree) -> EnvSpec:
    """The environment for three trees; equal for triples whose declared requirements are.

    Raises :class:`BadInput` when vllm-ascend pins no torch, or a torch-npu for another one.
    """
    pinned = {_key(one): one for one in _parsed(ascend, "requirements.txt")}
    _check_torch(pinned, ascend)
    overrides = {name: one for name, one in pinned.items() if name in _BOUND_BY_ASCEND and _bounded(one)}
    overrides = _of_the_same_torch(overrides["torch"]) | overrides
    wanted: list[Requirement] = [one for one in _declared(vllm) if _key(one) not in _DEVICE_ONLY]
    known = {_key(one) for one in wanted}
    for name, one in pinned.items():
        if name not in known | _BUILD_ONLY | _DEVICE_ONLY:
            wanted.append(one if name in _BOUND_BY_ASCEND else Requirement(name))
        elif name == "transformers" and name not in overrides:
            wanted.append(one)
    skipped = _BUILD_ONLY | _DEVICE_ONLY
    wanted += [one for one in (_declared(omni) if omni else []) if _key(one) not in skipped]
    requirements = {str(one) for one in wanted if _key(one) not in ("vllm", "vllm-ascend", "vllm-omni")}
    return EnvSpec(
        NAME,
        (*sorted(requirements), *_undeclared(pinned), *_OURS),
        size_mb=SIZE_MB,
        heavy=True,
        overrides=tuple(sorted(str(one) for one in overrides.values())),
        duration=DURATION,
    )


def _undeclared(pinned: dict[str, Requirement]) -> tuple[str, ...]:
    """What the pinned torch-npu imports without declaring it."""
    old = any(one.version.startswith("2.9.") for one in pinned["torch-npu"].specifier)
    return (_WITH_PKG_RESOURCES,) if old else ()


def check_python(spec: EnvSpec) -> None:
    """Raise :class:`Blocked` when the pinned torch-npu has no wheel for the running Python.

    An environment that is there has shown it; when the index does not answer, the installer tells.
    """
    (pin,) = (one for one in map(Requirement, spec.overrides) if one.name == "torch-npu")
    version = next(iter(pin.specifier)).version
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if is_ready(spec):
        return
    try:
        files = [file.filename for file in release("torch-npu", version).files]
    except Blocked as error:
        say(f"note: cannot look up torch-npu's wheels: {error.what}")
        return
    wheels = [name for name in files if name.endswith("_x86_64.whl")]
    found = {f"3.{match[1]}" for name in wheels if (match := re.search(r"-cp3(\d+)-", name))}
    pythons = sorted(found, key=Version)
    if running not in pythons:
        raise Blocked(
            f"torch-npu {version} has no wheel for Python {running} on x86-64",
            expected=f"Python {', '.join(pythons) or 'none: it has no x86-64 wheel at all'}",
            try_=f"the same command with one of these, such as python{pythons[-1] if pythons else '3.11'}",
        )


def _check_torch(pinned: dict[str, Requirement], ascend: SourceTree) -> None:
    versions = {name: _exact(pinned[name]) for name in ("torch", "torch-npu") if name in pinned}
    torch, npu = versions.get("torch"), versions.get("torch-npu")
    if torch is None or npu is None:
        raise BadInput(
            f"requirements.txt of {ascend.spec} pins no exact torch and torch-npu",
            expected="torch==X and torch-npu==X, X.postN or X.rcN",
            try_="a vllm-ascend whose requirements.txt names both",
        )
    if torch.release != npu.release:
        raise BadInput(
            f"requirements.txt of {ascend.spec} pins torch {torch} with torch-npu {npu}",
            expected=f"torch-npu {torch.base_version}, {torch.base_version}.postN or .rcN: "
            "one is built for exactly one torch",
            try_="correct the pin that is wrong",
        )


def _of_the_same_torch(torch: Requirement) -> dict[str, Requirement]:
    """The releases of torch's own family that were built for it, for a vllm-ascend that does not pin them."""
    version = _exact(torch)
    if version is None or version.major != _TORCH_MAJOR:
        return {}
    vision = f"0.{version.minor + _VISION_AHEAD}.{version.micro}"
    return {
        "torchvision": Requirement(f"torchvision=={vision}"),
        "torchaudio": Requirement(f"torchaudio=={version.base_version}"),
    }


def _exact(requirement: Requirement) -> Version | None:
    pins = [one.version for one in requirement.specifier if one.operator == "=="]
    return Version(pins[0]) if len(pins) == 1 and "*" not in pins[0] else None


def _bounded(requirement: Requirement) -> bool:
    return any(one.operator in ("==", "<", "<=", "~=") for one in requirement.specifier)


def _declared(tree: SourceTree) -> list[Requirement]:
    """What a vllm or vllm-omni needs on any device: its common list, else its metadata or pyproject.toml."""
    if tree.exists(_COMMON):
        return _parsed(tree, _COMMON) + _of_developers(tree)
    for path in tree.list():
        if path.endswith(".dist-info/METADATA") or path == "PKG-INFO":
            lines = HeaderParser().parsestr(tree.read(path)).get_all("Requires-Dist") or []
            return _requirements(lines, f"{path} of {tree.spec}")
    if "dependencies" in (project := _project(tree)):
        return _requirements(project["dependencies"], f"{_PROJECT} of {tree.spec}") + _of_developers(tree)
    raise BadInput(
        f"{tree.spec} does not say what it requires",
        expected=f"{_COMMON}, package metadata, or dependencies in {_PROJECT}",
        try_="a release, or a whole checkout",
    )


def _of_developers(tree: SourceTree) -> list[Requirement]:
    """What models import and only an extra of a checkout's pyproject.toml declares."""
    extras = _project(tree).get("optional-dependencies", {}).values()
    found = [one for lines in extras for one in _requirements(lines, f"{_PROJECT} of {tree.spec}")]
    return [one for one in found if _key(one) in _UNDECLARED]


def _project(tree: SourceTree) -> dict[str, Any]:
    text = tree.read(_PROJECT) if tree.exists(_PROJECT) else ""
    return tomllib.loads(text).get("project", {})


def _parsed(tree: SourceTree, path: str) -> list[Requirement]:
    """The requirements of a file and of those it includes by ``-r``; other options are left out."""
    folder = path.rpartition("/")[0]
    found: list[Requirement] = []
    for line in tree.read(path).splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if included := re.match(r"(?:-r|--requirement)[\s=]*(\S+)", line):
            found += _parsed(tree, f"{folder}/{included[1]}".lstrip("/"))
        elif line and not line.startswith("-"):
            found += _requirements([line], f"{path} of {tree.spec}")
    return found


def _requirements(lines: Iterable[str], where: str) -> list[Requirement]:
    """Those whose marker holds here, without the marker; of extras only what models import."""
    found = []
    for line in lines:
        try:
            one = Requirement(line)
        except InvalidRequirement as error:
            raise BadInput(
                f"{where} has a line that is no requirement: {line!r}",
                expected="PEP 508, such as torch==2.10.0",
                try_="correct the line",
            ) from error
        extra = "dev" if _key(one) in _UNDECLARED else ""
        if one.marker is None or one.marker.evaluate({"extra": extra}):
            one.marker = None
            found.append(one)
    return found


def _key(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)
