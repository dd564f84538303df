"""A reference: what Transformers answers with the weights of a checkpoint, made once and kept by content.

It is computed on the CPU in float32, by the interpreter that serves or by one of our own, and again in
bfloat16: the difference is what the dtype of a server may change. Other weights are another reference.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import psutil

from npu_upgrade.checkpoint.likeness import Likeness
from npu_upgrade.checkpoint.locate import model_folder
from npu_upgrade.checkpoint.memory import GIB
from npu_upgrade.checkpoint.weights import read_weights
from npu_upgrade.evidence.judged import model_digest
from npu_upgrade.evidence.manifest import file_sha256
from npu_upgrade.gates.features.model import read as read_checkpoint
from npu_upgrade.gates.serving.smoke import picture
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.files import sha256, write_atomic
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.installed import installed

TEXT, IMAGE = "text", "image"
LOOK = "Describe this picture in one sentence, its colours and where they are."
_TEXTS = (
    "The capital of France is Paris, the capital of Italy is Rome, and the capital of Japan is",
    "One, two, three, four, five, six, seven,",
    "def add(first, second):\n    return first + second\n\n\nprint(add(17, 25))  # prints",
    "水在一百度沸腾并在零度",
    "A river begins in the hills as a thin line of water between stones. It runs down through woods and"
    " fields, takes in brooks from the left and from the right, turns mills, carries boats, and divides towns"
    " into two halves that never quite agree. In the end it slows down, widens, tastes of salt, and nobody"
    " can say at which point it has become the sea. Yet children who live there know, because",
)
_SEEDS = (1, 2)
_ASKED = {"tokens": 12, "top": 8, "half": "bfloat16"}  # greedy tokens, and likeliest tokens of each place
_PROGRAM = Path(__file__).with_name("program.py")
_RAISED = re.compile(r"[\w.]*Error\b")
_SECONDS = 3600.0
_GROUP = Path("/sys/fs/cgroup")
_SLACK = 1.15  # activations, and what a library needs for itself, over the weights


class Prompt(msgspec.Struct, frozen=True):
    """A prompt as ``ids``, and the greedy ``tokens`` that follow in float32.

    ``rows``: for each of these ids after the first, the token itself and then the likeliest ones at its
    place, each with its log-probability; a row is empty at a picture. ``half``: how the half dtype changes
    each number of the rows. ``scaled``: for each scale in the model how it changes them, per unit. ``seed``:
    of the picture.
    """

    name: str
    kind: Literal["text", "image"]
    ids: list[int]
    tokens: list[int]
    rows: list[list[tuple[int, float]]]
    half: list[list[float]]
    scaled: dict[str, list[list[float]]] = {}
    seed: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0

    @property
    def noise(self) -> list[float]:
        """The largest difference of each row in the half dtype; 0 for an empty one."""
        return [max(map(abs, row), default=0.0) for row in self.half]


class Reference(msgspec.Struct, frozen=True):
    """``digest``: of the checkpoint. ``code``: whose classes ran. ``without``: kind -> why it is missing.

    ``vocabulary``: of how many tokens there are log-probabilities.
    """

    digest: str
    transformers: str
    architecture: str
    code: str
    vocabulary: int
    prompts: list[Prompt]
    without: dict[str, str] = {}


class NoReference(Exception):
    """There is none, and why."""


def make(
    model: str,
    python: Path,
    *,
    trust: bool,
    like: Likeness | None = None,
    variables: Mapping[str, str] | None = None,
) -> tuple[Reference, Path]:
    """The reference of a checkpoint and the file it is kept in; a kept one is only read.

    ``python`` has Transformers. ``trust``: the checkpoint's own code may run where Transformers has none.
    ``like``: the family that the checkpoint computes under other names; the class of Transformers is then
    that of the family, and fp8 weights are what they stand for. ``variables``: what the interpreter needs,
    as that of an emulated NPU does. Raises :class:`NoReference`.
    """
    try:
        folder = model_folder(model)
        version = installed(python).versions.get("transformers")
        checkpoint = read_checkpoint(folder, like)
    except UpgradeError as error:
        raise NoReference(error.what) from error
    if version is None:
        raise NoReference("the Python that serves has no Transformers")
    quantized = checkpoint.analysis.file.quantization
    if (method := checkpoint.quantization().value) and not (like and method == "fp8"):
        raise NoReference(f"its weights are quantized ({method}), and Transformers computes with other ones")
    weights = read_weights(folder)
    if unread := next((one.what for one in weights.findings if one.kind == "shard-unreadable"), ""):
        raise NoReference(unread)
    needed = sum(math.prod(one.shape) for one in weights.tensors.values()) * 4 * _SLACK + GIB
    _check_memory(needed, psutil.virtual_memory().total)  # before hours of reading what never fits
    content = model_digest(folder) or ""
    prompts: list[dict[str, Any]] = [{"name": text[:24], "kind": TEXT, "text": text} for text in _TEXTS]
    for seed in _SEEDS if IMAGE in checkpoint.modalities().value else ():
        image = {"image": picture(seed).partition(",")[2], "seed": seed}
        prompts.append({"name": f"picture {seed}", "kind": IMAGE, "text": LOOK, **image})
    block = quantized.details.get("weight_block_size") or [1, 1]
    family = msgspec.to_builtins(like) | {"block": block} if like else None
    asked = _ASKED | {"prompts": prompts, "trust": trust, "family": family}
    said = json.dumps([content, version, asked, file_sha256(_PROGRAM)])
    kept = cache_root() / "references" / f"{sha256(said)[:32]}.json"
    if not kept.is_file():
        _check_memory(needed, _free())
        say(f"reference: Transformers {version} on this CPU, once for these weights")
        made = msgspec.json.decode(_run(python, asked | {"folder": str(folder)}, variables or {}))
        if not made["prompts"]:
            raise NoReference("; ".join(made["without"].values()))
        write_atomic(kept, msgspec.json.encode(made | {"digest": content}))
    return read(kept, content), kept


def read(path: Path, content: str) -> Reference:
    """A reference that was recorded of the checkpoint with the digest ``content``.

    Raises :class:`BadInput` when it is none, or one of other weights.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Reference)
        for one in found.prompts:
            sizes = [[len(row) for row in rows] for rows in (one.rows, one.half, *one.scaled.values())]
            if len(one.ids + one.tokens) - 1 != len(one.rows) or sizes != sizes[:1] * len(sizes):
                raise msgspec.ValidationError(f"it holds half of prompt {one.name!r}")
        if not found.prompts:
            raise msgspec.ValidationError("it holds no prompts")
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(
            f"{path} is no reference: {error}",
            expected="a file that the command reference wrote",
            try_="upgrade.py reference MODEL --out FILE, where Transformers can hold the model",
        ) from error
    if found.digest != content:
        raise BadInput(
            f"{path} is of other weights: {found.digest[:16]}, the model's are {content[:16]}",
            expected="a reference of exactly these weights, configuration and tokenizer",
            try_="record it again with the checkpoint that is served",
        )
    return found


def _check_memory(needed: float, free: float) -> None:
    if needed > free:
        raise NoReference(f"{needed / GIB:.1f} GiB of memory needed, {free / GIB:.1f} free")


def _free() -> float:
    """Bytes that this process may still take, the limit of its control group included.

    What the group read of files counts as taken, and is given back where memory is needed.
    """
    free = float(psutil.virtual_memory().available)
    for folder, most, taken in (("", "max", "current"), ("memory", "limit_in_bytes", "usage_in_bytes")):
        with contextlib.suppress(OSError, ValueError):  # no group, or one without a limit
            names = (f"memory.{most}", f"memory.{taken}", "memory.stat")
            limit, used, told = ((_GROUP / folder / name).read_text("utf-8").strip() for name in names)
            found = re.findall(r"^(?:total_)?inactive_file (\d+)$", told, re.MULTILINE)
            free = min(free, float(limit) - float(used) + max(map(float, found), default=0.0))
    return free


def _cores() -> int:
    """How many cores this process may use, the limit of its control group included."""
    cores = float(len(os.sched_getaffinity(0)))
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):  # no group, or one without a limit: max, or -1
            quota, period = " ".join((_GROUP / name).read_text("utf-8") for name in names).split()
            cores = min(cores, float(quota) / float(period)) if quota != "-1" else cores
    return max(1, int(cores))


def _run(python: Path, asked: dict[str, Any], variables: Mapping[str, str]) -> bytes:
    """What the program prints; raises :class:`NoReference` with its last error."""
    # servers of NPUs are told to leave the CPU alone, which this is about
    environment = {**os.environ, **variables, "OMP_NUM_THREADS": str(_cores())}
    environment.pop("PYTHONPATH", None)
    command, given = [str(python), "-P", str(_PROGRAM)], json.dumps(asked).encode()
    try:
        done = subprocess.run(command, input=given, capture_output=True, env=environment, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoReference(str(error)) from error
    if done.returncode or not done.stdout.strip():
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"]
        why = next((one for one in reversed(lines) if _RAISED.match(one)), lines[-1])
        raise NoReference(f"Transformers: {why[:300]}")
    return done.stdout
