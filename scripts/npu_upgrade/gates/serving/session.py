"""What the starts of one gate share: model, interpreter, device, how they are judged, where logs go."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from npu_upgrade.checkpoint.likeness import Likeness
from npu_upgrade.checkpoint.locate import MODELS, model_folder
from npu_upgrade.evidence.store import Store
from npu_upgrade.gates.features.model import Checkpoint, read
from npu_upgrade.gates.serving import launch as launching
from npu_upgrade.gates.serving.device import CPU, NPU, Device, detect
from npu_upgrade.gates.serving.gate import Options
from npu_upgrade.gates.serving.launch import Launch
from npu_upgrade.gates.serving.server import check_room, end_leftovers
from npu_upgrade.gates.validation.pack_program import interpreter_of
from npu_upgrade.gates.vllm_cpu import DEFAULT, cpu_python
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.signals import terminated_as_interrupted
from npu_upgrade.sources.installed import Installed, misplaced, serving

_OURS = re.compile(r"(\d{1,9})-[a-z0-9_]{8}")  # the process, and what mkdtemp adds
_DEFAULTS: dict[str, dict[str, str]] = {  # of variables that nobody set
    # in GiB; without it vLLM takes most of the machine's memory. What vLLM 0.30.0 compiles ahead for a CPU it
    # cannot load again (its log says so at each start), and compiles anew
    CPU: {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_USE_AOT_COMPILE": "0"},
    NPU: {"HCCL_OP_EXPANSION_MODE": "AIV"},
}


@dataclass(frozen=True)
class Session:
    """What to start, with which installation, on which device, how it is judged, and where evidence goes.

    ``like``: the family that a plan says the checkpoint is.
    """

    launch: Launch
    installed: Installed
    device: Device
    options: Options
    store: Store
    like: Likeness | None = None

    def checkpoint(self) -> Checkpoint:
        """What is to be served, read as what the plan says of it."""
        return read(model_folder(self.launch.model), self.like)


def prepare(
    launch: Launch, options: Options, store: Store, *, emulated: bool, expected: Mapping[str, Path]
) -> Session:
    """Look at everything a start needs; raises before anything starts.

    ``expected``: package -> the folder it has to be imported from below.
    """
    launching.check(launch)
    also = [name.replace("_", "-") for name in expected]
    installed = serving(launch.python, launch.variables(), launch.cwd, also)
    if wrong := misplaced(installed, expected):
        raise BadInput(
            "; ".join(wrong),
            expected="imports from the checkout, so that the code you changed is the code that serves",
            try_=f"{launch.python} -m pip install --no-deps -e the checkout, or another --python",
        )
    device = detect(installed, emulated)
    check_room(store.folder)
    defaults = {
        name: value for name, value in _DEFAULTS.get(device.kind, {}).items() if name not in os.environ
    }
    watched = (*launch.watched, *installed.adapters)
    launch = replace(launch, environment=defaults | dict(launch.environment), watched=watched)
    return Session(launch, installed, device, options, store)


def clear_leftovers() -> None:
    """End what runs of ours left behind whose gate was killed, and say so."""
    for one in end_leftovers():
        say(f"ended process {one.pid}, left by the run {one.run}, whose gate was killed")


def model_place(text: str) -> str:
    """A folder as its whole path, a name below the model root, or an id as it is."""
    here, below = Path(text).expanduser(), MODELS / text
    if here.is_dir():
        return str(here.absolute())
    return str(below) if below.is_dir() else text


def takes_images(model: str, like: Likeness | None = None) -> bool | None:
    """What the checkpoint's configuration says; None when only the server can tell."""
    folder = Path(model)
    if not (folder / "config.json").is_file():
        return None
    return "image" in read(folder, like).modalities().value


def named_python(text: str) -> Path:
    """The interpreter that ``--python`` names; raises :class:`Blocked` where auto finds none."""
    kind, _, version = text.partition(":")
    if kind == "cpu":
        return cpu_python(version or DEFAULT)
    if text != "auto":
        return Path(text).expanduser().absolute()
    script = shutil.which("vllm")
    if script is None:
        raise Blocked(
            "there is no vllm on PATH",
            expected="an installed vllm",
            try_="--python /path/to/its/python, or --python cpu: this project then makes one for the CPU",
            adding=("--python", "cpu"),
        )
    return interpreter_of(Path(script))


@contextmanager
def scratch(store: Store) -> Generator[Path]:
    """A private folder for the logs of running servers, on the disk of the evidence; removed at the end.

    While it is open a termination of this process is an interruption, so that the server is ended first.
    """
    root = store.folder / "scratch"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        for old in root.iterdir():
            ours = _OURS.fullmatch(old.name)  # whatever else is there is somebody's
            if ours and old.is_dir() and not psutil.pid_exists(int(ours[1])):
                shutil.rmtree(old, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=root))
    except OSError as error:
        raise Blocked(
            f"no folder for the logs of servers can be made in {root}: {error.strerror}",
            expected="a folder that this user may write to",
            try_=f"look at {root}, or choose another --workspace",
        ) from error
    try:
        with terminated_as_interrupted():
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


Stopped = Blocked | KeyboardInterrupt | None


def stopping(play: Callable[[], object]) -> Stopped:
    """Run it, and return what ended it early, so that what was done before is recorded."""
    try:
        play()
    except (Blocked, KeyboardInterrupt) as error:
        return error
    return None
