"""Which code and which checkpoint a run judged, as hashes of the files that count."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from npu_upgrade.evidence.manifest import file_sha256
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.errors import BadInput

_RUNS = {".py", ".so", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".sh", ".jinja", ".yaml", ".yml", ".json"}
_HEADER = 1 << 20  # bytes of a weight file that tell which tensors it holds
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
        if path.suffix in _RUNS and not _OUTSIDE.intersection(relative.parts) and path.is_file():
            found[relative.as_posix()] = file_sha256(path)
    if not found:
        raise BadInput(
            f"{folder} holds no code of {name}",
            expected="the folder of the package as it is imported",
            try_=f"python -c 'import {name}; print({name}.__path__)' with the interpreter that serves",
        )
    return found


def model_digest(folder: Path) -> str | None:
    """SHA-256 over names, sizes, configuration and the heads of the weight files; None for a model by id."""
    if not (folder / "config.json").is_file():
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in (".json", ".safetensors", ".bin", ".pt", ".py", ".model"):
            digest.update(f"{path.name} {path.stat().st_size}\n".encode())
            with open(path, "rb") as stream:
                digest.update(stream.read(_HEADER))
    return digest.hexdigest()
