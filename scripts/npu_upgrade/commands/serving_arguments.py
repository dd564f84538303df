"""The options of every command that starts a server, and what they ask for."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from npu_upgrade.commands.job_arguments import add_workspace_argument
from npu_upgrade.evidence.store import Store, workspace_store
from npu_upgrade.gates.features.model import read
from npu_upgrade.gates.serving import launch as launching
from npu_upgrade.gates.serving.device import CPU, NPU, Device, detect
from npu_upgrade.gates.serving.gate import Options
from npu_upgrade.gates.serving.gate_file import load
from npu_upgrade.gates.serving.launch import DUMMY, REAL, Launch
from npu_upgrade.gates.serving.server import check_leftovers, check_room, end_leftovers
from npu_upgrade.gates.serving.watch import BUDGETS, LONGEST_LOG, STILL
from npu_upgrade.gates.vllm_cpu import DEFAULT, cpu_python
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.job.job import find_workspace
from npu_upgrade.sources.installed import Installed, misplaced, serving

WORK_DIR, MODEL_ROOT = Path("/workspace"), Path("/models")
_OURS = re.compile(r"(\d{1,9})-[a-z0-9_]{8}")  # the process, and what mkdtemp adds
_DEFAULTS: dict[str, dict[str, str]] = {  # of variables that nobody set
    CPU: {"VLLM_CPU_KVCACHE_SPACE": "1"},  # GiB; without it vLLM takes most of the machine's memory
    NPU: {"HCCL_OP_EXPANSION_MODE": "AIV"},
}


@dataclass(frozen=True)
class Asked:
    """A server that is asked for: what to start, with which installation, on which device, how judged."""

    launch: Launch
    installed: Installed
    device: Device
    options: Options
    store: Store


def add_serving_arguments(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """The model, the interpreter that serves it, and how it is started and judged.

    ``optional``: the command does something without a model, too.
    """
    parser.add_argument(
        "model",
        nargs="?" if optional else None,
        metavar="MODEL",
        help=f"its folder, a name below {MODEL_ROOT}, or a Hugging Face id",
    )
    parser.set_defaults(passed_on=[])  # what follows -- goes to vllm serve as it is
    parser.add_argument(
        "--load-format",
        choices=(DUMMY, REAL),
        default=REAL,
        help="weights: real (default) or dummy, the fast gate",
    )
    parser.add_argument(
        "--python",
        default="auto",
        metavar="PYTHON",
        help="the interpreter with vllm; auto: that of the vllm on PATH; cpu or cpu:VERSION: our own",
    )
    parser.add_argument("--omni", action="store_true", help="vllm serve --omni, with vllm-omni's stages")
    parser.add_argument(
        "--emulated", action="store_true", help="the NPU is an emulated one: label it so, whatever it passes"
    )
    parser.add_argument(
        "--gate", type=Path, metavar="FILE", help="a gate file: requests and what their answers have to be"
    )
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help="the port, for instance 8000 (default: any free one)",
    )
    parser.add_argument(
        "--work-dir",
        type=Path,
        metavar="DIR",
        help=f"where it is started ({WORK_DIR} where there is one, else here)",
    )
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="set for the server")
    parser.add_argument(
        "--expect-import",
        action="append",
        default=[],
        metavar="PACKAGE=DIR",
        help="fail unless PACKAGE is imported from below DIR, for instance vllm=/vllm-workspace/vllm",
    )
    parser.add_argument(
        "--keep-pythonpath", action="store_true", help="leave PYTHONPATH; a diagnostic, never a default"
    )
    parser.add_argument(
        "--generations", type=int, default=3, metavar="N", help="generations it has to survive (3)"
    )
    parser.add_argument(
        "--quiet", type=float, default=5.0, metavar="S", help="seconds in which nothing may end (5)"
    )
    parser.add_argument(
        "--budget",
        action="append",
        default=[],
        metavar="PHASE=S",
        help="most seconds of a phase: " + ", ".join(f"{name} {most:.0f}" for name, most in BUDGETS.items()),
    )
    parser.add_argument(
        "--still",
        type=float,
        default=STILL,
        metavar="S",
        help=f"seconds without log and work that are a hang ({STILL:.0f})",
    )
    parser.add_argument(
        "--answer", type=float, default=120.0, metavar="S", help="most seconds of one answer (120)"
    )
    parser.add_argument(
        "--longest-log",
        type=int,
        default=LONGEST_LOG >> 20,
        metavar="MIB",
        help=f"a log that grows beyond this is a flood ({LONGEST_LOG >> 20})",
    )
    parser.add_argument(
        "--end-leftovers",
        action="store_true",
        help="end what earlier runs of this gate left behind, and nothing else",
    )
    add_workspace_argument(parser)


def asked(args: argparse.Namespace) -> Asked:
    """Everything the options ask for; raises before anything starts."""
    options = Options(
        generations=_positive(args.generations, "--generations"),
        quiet=args.quiet,
        still=args.still,
        answer=args.answer,
        longest_log=_positive(args.longest_log, "--longest-log") << 20,
        budgets=BUDGETS
        | {name: _seconds(name, text) for name, text in _pairs(args.budget, "--budget", BUDGETS)},
        images=_takes_images(_model(args.model)),
        requests=load(args.gate) if args.gate else (),
    )
    python = named_python(args.python)
    launch = Launch(
        model=_model(args.model),
        python=python,
        load_format=args.load_format,
        omni=args.omni,
        arguments=tuple(args.passed_on),
        environment=dict(_pairs(args.env, "--env")),
        cwd=(args.work_dir or (WORK_DIR if WORK_DIR.is_dir() else Path.cwd())).absolute(),
        port=args.port,
        overlay=args.keep_pythonpath or args.emulated,
    )
    launching.check(launch)
    installed = serving(python, launch.variables(), launch.cwd)
    if wrong := misplaced(
        installed, {name: Path(at) for name, at in _pairs(args.expect_import, "--expect-import")}
    ):
        raise BadInput(
            "; ".join(wrong),
            expected="imports from the workspace, so that the code you changed is the code that serves",
            try_=f"{python} -m pip install -e the workspace's checkout, or another --python",
        )
    device = detect(installed, args.emulated)
    store = workspace_store(args.workspace or find_workspace(Path.cwd()))
    check_room(store.folder)
    _leftovers(args.end_leftovers)
    return Asked(_settled(launch, device), installed, device, options, store)


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

    came: list[int] = []

    def interrupt(number: int, _: object) -> None:
        came.append(number)
        if len(came) == 1:  # timeout(1) sends its signal twice
            raise KeyboardInterrupt

    before = {one: signal.signal(one, interrupt) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield folder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        shutil.rmtree(folder, ignore_errors=True)


def _settled(launch: Launch, device: Device) -> Launch:
    """With the defaults of the device for variables that nobody set."""
    defaults = {
        name: value for name, value in _DEFAULTS.get(device.kind, {}).items() if name not in os.environ
    }
    return replace(launch, environment=defaults | dict(launch.environment))


def _leftovers(end: bool) -> None:
    if end:
        for one in end_leftovers():
            say(f"ended process {one.pid} of the earlier run {one.run}")
    check_leftovers()


def _model(text: str) -> str:
    """A folder as its whole path, a name below the model root, or an id as it is."""
    here = Path(text).expanduser()
    if here.is_dir():
        return str(here.absolute())
    below = MODEL_ROOT / text
    return str(below) if below.is_dir() else text


def _takes_images(model: str) -> bool | None:
    """What the checkpoint's configuration says; None when only the server can tell."""
    folder = Path(model)
    if not (folder / "config.json").is_file():
        return None
    return "image" in read(folder).modalities().value


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
        )
    beside = Path(script).resolve().with_name("python")
    return beside if beside.exists() else Path(script).with_name("python3")


def _pairs(texts: list[str], option: str, known: Mapping[str, object] | None = None) -> list[tuple[str, str]]:
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or (known is not None and name not in known):
            names = f" with one of {', '.join(known)}" if known else ""
            raise BadInput(f"{option} {text}", expected=f"NAME=VALUE{names}", try_=f"{option} NAME=VALUE")
        found.append((name, value))
    return found


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise BadInput(f"the budget of {name} is {text!r}", expected="seconds", try_=f"--budget {name}=600")
    return value


def _positive(number: int, option: str) -> int:
    if number < 1:
        raise BadInput(f"{option} {number}", expected="1 or more", try_=f"{option} 3")
    return number
