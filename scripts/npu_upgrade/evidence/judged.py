"""Which code and which checkpoint a run judged, as hashes of the files that count."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from npu_upgrade.checkpoint.locate import model_folder
from npu_upgrade.checkpoint.memory import GIB
from npu_upgrade.checkpoint.reading import regular
from npu_upgrade.evidence.manifest import file_sha256
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.files import read_object, sha256, write_json
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say

_RUNS = {".py", ".so", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".sh", ".jinja", ".yaml", ".yml", ".json"}
_OF_MODEL = {".json", ".safetensors", ".bin", ".pt", ".pth", ".py", ".model", ".jinja", ".txt"}
_LARGE = 1 << 20  # bytes; smaller files are read sooner than what was kept of them
_COARSE = 2_000_000_000  # nanoseconds within which two writes may look like one
_AT_ONCE = 8
GENERATED = ("_version.py", "_build_info.py")
"""What a build, or an emulated run, writes into a package: the same code has it or not."""
_OUTSIDE = {"__pycache__", ".git", "docs", "references", "tests", "benchmarks", ".npu-upgrade"}


def judged(packages: Mapping[str, Path]) -> tuple[Subject, dict[str, dict[str, str]]]:
    """The subject of a run and its whole list of files.

    ``packages``: name -> folder of the imported package. The subject holds one hash for each package; the
    list has each file's. Raises :class:`BadInput` for a folder that holds nothing that runs.
    """
    files = {name: _files(name, folder) for name, folder in packages.items()}
    return Subject({name: Subject(listed).tree for name, listed in files.items()}), files


def _files(name: str, folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        counts = path.suffix in _RUNS and path.name not in GENERATED
        if counts and not _OUTSIDE.intersection(relative.parts) and path.is_file():
            found[relative.as_posix()] = file_sha256(path)
    if not found:
        raise BadInput(
            f"{folder} holds no code of {name}",
            expected="the folder of the package as it is imported",
            try_=f"python -c 'import {name}; print({name}.__path__)' with the interpreter that serves",
        )
    return found


def model_digest(model: str | Path) -> str | None:
    """SHA-256 over the whole content of weights, configuration, tokenizer and code; None for no folder here.

    Hidden folders are left out. What is no file to read, such as a pipe, counts by its name.
    """
    try:
        folder = model_folder(str(model))
    except UpgradeError:
        return None
    paths = (path for path in folder.rglob("*") if path.suffix in _OF_MODEL and not path.is_dir())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    shown = [name for name in sorted(names) if not re.search(r"(^|/)(\.|__pycache__/)", name)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        hashes = pool.map(lambda name: _content(names[name]), shown)
        lines = [f"{name} {one}\n" for name, one in zip(shown, hashes, strict=True)]
    return sha256("".join(lines)) if lines else None


def _content(path: Path) -> str:
    """The hash of a file; that of a large one is kept as long as nothing wrote to it."""
    if why := regular(path):
        return why
    now = path.stat()
    if now.st_size < _LARGE:
        return file_sha256(path)
    # every write sets the time of change, which nobody can set back
    state = [now.st_size, now.st_dev, now.st_ino, now.st_ctime_ns]
    place = cache_root() / "digests" / f"{sha256(str(path.resolve()))[:32]}.json"
    kept = read_object(place)
    if kept.get("state") == state:
        return str(kept["sha256"])
    if now.st_size > GIB:
        say(f"digest: {path.name}, {now.st_size / GIB:.1f} GiB, read once as long as it stays as it is")
    found = file_sha256(path)
    settled = time.time_ns() - now.st_ctime_ns > _COARSE
    if settled and path.stat().st_ctime_ns == now.st_ctime_ns:
        with contextlib.suppress(BadInput):  # a cache that takes nothing costs time only
            write_json(place, {"state": state, "sha256": found})
    return found
