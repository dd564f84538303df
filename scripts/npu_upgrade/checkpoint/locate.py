"""The folder of a model: a path, a name below the models folder, or a Hugging Face id in a local cache."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from npu_upgrade.ground.errors import BadInput, Blocked

MODELS = Path("/models")
_ID = re.compile(r"[\w.-]+/[\w.-]+")


def model_folder(given: str, models: Path = MODELS) -> Path:
    """The folder that ``given`` names.

    Raises :class:`BadInput` when it names no folder and :class:`Blocked`, with the command that downloads it,
    when it is an id that no cache has.
    """
    path = Path(given).expanduser()
    try:
        if path.is_dir():
            return path
        if path.exists():
            raise BadInput(
                f"{path} is no folder",
                expected="the folder of a checkpoint",
                try_=f"the folder: {path.parent}",
            )
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{given[:80]!r} is no path", expected="a folder or a Hugging Face id", try_=""
        ) from error
    if (below := models / given).is_dir() and not path.is_absolute() and ".." not in path.parts:
        return below
    if _ID.fullmatch(given) and not given.startswith("."):
        return _cached(given, models)
    raise BadInput(
        f"no folder {given}",
        expected=f"the folder of a checkpoint, a name below {models}, or an id such as Qwen/Qwen3-8B",
        try_="check the path, or --models DIR",
    )


def hub_home() -> Path:
    """Where what comes from the hub is kept."""
    return Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()


def hub_caches() -> list[Path]:
    """The folders that may have what was downloaded."""
    named = [os.environ.get(key) for key in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")]
    return [*(Path(one).expanduser() for one in named if one), hub_home() / "hub"]


def _cached(name: str, models: Path) -> Path:
    for root in hub_caches():
        folder = root / f"models--{name.replace('/', '--')}"
        reference = folder / "refs" / "main"
        if reference.is_file():
            named = folder / "snapshots" / reference.read_text(encoding="utf-8").strip()
            if named.is_dir():
                return named
        if found := [path for path in (folder / "snapshots").glob("*") if path.is_dir()]:
            return max(found, key=lambda path: path.stat().st_mtime)
    modelscope = Path(os.environ.get("MODELSCOPE_CACHE") or "~/.cache/modelscope/hub").expanduser()
    for folder in (modelscope / "models" / name, modelscope / name, models / name.partition("/")[2]):
        if folder.is_dir():
            return folder
    raise Blocked(
        f"{name} is in no local cache",
        expected="a downloaded checkpoint; nothing is downloaded here",
        try_=f"{shlex.join(['hf', 'download', name])} (its configuration alone: add --include '*.json')",
    )
