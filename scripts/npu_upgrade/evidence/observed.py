"""What a running engine showed of itself: which classes it built, on which device, and what they executed.

Each process of a server is looked at from inside; nothing here is taken from a command line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

NAME = "observed.json"  # in the folder of a run, or of each of its starts
ROLES = ("worker", "runner", "scheduler", "model", "attention backend")


class Class(Struct, frozen=True):
    """A class: ``name`` is ``module.QualName``; ``path`` its file, relative to the folder that its top
    package lies in (``vllm_omni/platforms/npu/worker/npu_ar_model_runner.py``); ``sha256`` of that file."""

    name: str
    path: str
    sha256: str


class Built(Struct, frozen=True):
    """An object that the engine built. ``classes``: its class, then the bases in resolution order, without
    those of torch and Python. ``steps``: how often it executed (``execute_model`` of a worker or runner,
    ``schedule`` of a scheduler, ``forward`` of a model as its runner calls it, the metadata that an attention
    backend built for a batch)."""

    role: str
    classes: tuple[Class, ...]
    steps: int = 0


class Ran(Struct, frozen=True):
    """A file of Python that a process loaded, by content, and the functions in it that were called.

    ``sha256`` is empty when it changed while the server started: what was loaded is not known then."""

    sha256: str
    functions: tuple[str, ...] = ()


class Device(Struct, frozen=True):
    """What the tensors of a process live on. ``kind``: npu, npu emulated, gpu or cpu; ``name`` as its driver
    says; ``bytes`` of the model's parameters on it."""

    kind: str
    name: str = ""
    bytes: int = 0


class Process(Struct, frozen=True):
    """One process of a server. ``stage``: that of an omni pipeline, None in plain mode. ``config``: the
    engine's configuration as resolved. ``files``: path as in :class:`Class` -> what ran of it, for the
    packages that evidence is about. ``watched``: whether calls of functions could be seen; a file without any
    was not executed only then. ``problems``: what the observer itself could not do."""

    pid: int
    kind: str
    stage: int | None = None
    rank: int = 0
    device: Device | None = None
    built: tuple[Built, ...] = ()
    config: dict[str, Any] = {}
    files: dict[str, Ran] = {}
    watched: bool = False
    problems: tuple[str, ...] = ()


class Observed(Struct, frozen=True):
    """One start of a server. ``mode``: plain or omni. ``variables``: those of the environment that change
    what runs. ``pythonpath``: folders laid over the installation. ``versions``: distribution -> version;
    ``required``: distribution -> what the release itself asks for."""

    mode: str
    processes: tuple[Process, ...] = ()
    variables: dict[str, str] = {}
    pythonpath: tuple[str, ...] = ()
    work_dir: str = ""
    versions: dict[str, str] = {}
    required: dict[str, str] = {}

    def built(self, role: str) -> Iterator[Built]:
        """Every object of a role, of all processes."""
        return (one for process in self.processes for one in process.built if one.role == role)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the first runner, else of any process; empty when none told one."""
        told = [one for one in self.processes if one.config]
        ran = [one for one in told if any(built.role == "runner" for built in one.built)]
        return next((one.config for one in [*ran, *told]), {})

    @property
    def devices(self) -> frozenset[str]:
        """The kinds of device that parameters live on."""
        return frozenset(one.device.kind for one in self.processes if one.device)

    @property
    def dummy(self) -> bool:
        """Whether an engine loaded dummy weights, whatever the run is labelled."""
        return any(one.config.get("load_format") == "dummy" for one in self.processes)

    def summary(self) -> dict[str, Any]:
        """What a reader wants to know first: mode, devices, each process's classes and their steps."""
        rows = [
            {"kind": one.kind, "stage": one.stage, "rank": one.rank, "device": one.device and one.device.kind}
            | {
                built.role: {"class": built.classes[0].name, "steps": built.steps}
                for built in one.built
                if built.classes
            }
            for one in self.processes
            if one.built
        ]
        return {
            "mode": self.mode,
            "devices": sorted(self.devices),
            "processes": rows,
            "pythonpath": list(self.pythonpath),
            "work_dir": self.work_dir,
        }


class Exercised(Struct, frozen=True):
    """What one emulated run of a scenario built, and which classes executed steps in it.

    ``classes``: path in its tree -> the classes of the watched files of which functions ran after the import.
    """

    tier: str
    scenario: str
    state: str
    worker: str
    runner: str
    classes: dict[str, list[str]]


def observed_in(folder: Path) -> list[Observed]:
    """What each judged start of a run showed, in their order; one that nothing was seen of is left out."""
    starts = sorted(folder.glob(f"start-*/{NAME}"), key=lambda path: (len(str(path)), path))
    files = [one for one in (folder / NAME, *starts) if one.is_file()]
    found = [msgspec.json.decode(path.read_bytes(), type=Observed | None) for path in files]
    return [one for one in found if one]
