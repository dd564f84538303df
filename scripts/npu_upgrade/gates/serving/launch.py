"""What is started: a model with a vLLM, how, and where; and the command line of it."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.installed import toolkit_folders

DUMMY, REAL = "dummy", "real"
OMNI = "vllm_omni"  # the package that adds --omni to vllm serve
EMULATED_SEQUENCES = 4
EMULATED_TOKENS = 8  # of an answer: each takes a second or more
_SIZES = ("--max-num-seqs", "--enforce-eager", "capture_size", "capture-size")
_OURS = ("--host", "--port", "--served-model-name", "--load-format", "--uds", "--api-key")


@dataclass(frozen=True)
class Launch:
    """One start of a server.

    ``model``: a folder or a Hugging Face id. ``python``: the interpreter whose vLLM serves. ``arguments``:
    further options of ``vllm serve``. ``environment``: variables set for the server. ``cwd``: where it is
    started. ``port``: the one asked for, or None for any free one. ``overlay``: PYTHONPATH stays as it is.
    ``watched``: the packages whose files and calls the server's processes tell. ``plugin``: the package of a
    model's own that has to take part.
    """

    model: str
    python: Path
    load_format: str = DUMMY
    omni: bool = False
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = Path()
    port: int | None = None
    overlay: bool = False
    watched: tuple[str, ...] = ("vllm_omni", "vllm_ascend")
    plugin: str = ""

    @property
    def model_name(self) -> str:
        return Path(self.model.rstrip("/")).name

    def program(self) -> list[str]:
        """How ``vllm`` is called.

        The ``vllm`` beside the interpreter is what a user would start; ``-P`` keeps a folder ``vllm`` in the
        working directory from being imported instead where there is none.
        """
        script = self.python.with_name("vllm")
        module = "vllm_omni.entrypoints.cli.main" if self.omni else "vllm.entrypoints.cli.main"
        return [str(script)] if script.is_file() else [str(self.python), "-P", "-m", module]

    def command(self) -> list[str]:
        """The command line, without host, port and served name, which the gate adds."""
        more = ["--omni"] if self.omni else []
        more += ["--load-format", "dummy"] if self.load_format == DUMMY else []
        return [*self.program(), "serve", self.model, *more, *self.arguments]

    def variables(self) -> dict[str, str]:
        """The whole environment of the server: this process's, without an overlay, and what was asked for.

        vLLM starts interpreters of its own with ``-m``; none may import a checkout that it is started in.
        """
        found = {"PYTHONSAFEPATH": "1"} | os.environ
        if not self.overlay:
            kept = toolkit_folders(found)
            found.pop("PYTHONPATH", None)
            found |= {"PYTHONPATH": os.pathsep.join(kept)} if kept else {}
        found["PATH"] = f"{self.python.parent}{os.pathsep}{found.get('PATH', os.defpath)}"
        return found | dict(self.environment)


def given(arguments: Sequence[str], *names: str) -> list[str]:
    """The values that arguments of vllm serve give to an option, whichever of its ``names`` is used."""
    found = []
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in names:
            found.append(value if equals else "".join(arguments[at + 1 : at + 2]))
    return found


def given_json(arguments: Sequence[str], *names: str) -> dict[str, Any]:
    """The first such value as a JSON object; empty when it is none: vLLM itself refuses it."""
    try:
        found = json.loads(next(iter(given(arguments, *names)), ""))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def sized_for_emulation(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments, with few sequences where they say nothing of it.

    A graph is captured for every size up to twice as many: for vLLM's 256 it takes minutes on two cores, and
    more memory than an emulated device has.
    """
    chosen = any(size in one for one in arguments for size in _SIZES)
    return (*arguments, *(() if chosen else ("--max-num-seqs", str(EMULATED_SEQUENCES))))


def clashing(arguments: Sequence[str], names: Iterable[str]) -> list[str]:
    """Which of the options ``names`` stand among the arguments."""
    return sorted({one.partition("=")[0] for one in arguments} & set(names))


def ranks(arguments: Sequence[str]) -> int:
    """Tensor times data parallel, as the arguments of vllm serve ask for."""
    return _product(arguments, "--tensor-parallel-size", "-tp", "--data-parallel-size", "-dp")


def devices(arguments: Sequence[str]) -> int:
    """How many devices a server with these arguments takes."""
    return ranks(arguments) * _product(arguments, "--pipeline-parallel-size", "-pp")


def _product(arguments: Sequence[str], *names: str) -> int:
    return math.prod(int(one) for one in given(arguments, *names) if one.isdigit())


def check(launch: Launch) -> None:
    """Raise :class:`BadInput` for what the gate itself decides, and for an interpreter that is not there."""
    if clash := clashing(launch.arguments, _OURS):
        raise BadInput(
            f"the gate sets {', '.join(clash)} itself",
            expected="options of vllm serve other than these",
            try_="the gate's own --port and --load-format; its served name is random",
        )
    if not shutil.which(str(launch.python)):
        raise BadInput(
            f"{launch.python} is no interpreter",
            expected="the Python that vllm is installed for",
            try_="--python /path/to/python, or --python cpu for this project's own vLLM on the CPU",
        )
    looks_local = launch.model.startswith((".", "/", "~"))
    if looks_local and not (Path(launch.model) / "config.json").is_file():
        raise BadInput(
            f"{launch.model} holds no config.json",
            expected="the folder of a checkpoint",
            try_="the folder with config.json, tokenizer and weights",
        )
    if not launch.cwd.is_dir():
        raise BadInput(f"{launch.cwd} is no folder", expected="a work directory", try_="--work-dir DIR")
