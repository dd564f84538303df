"""Which code a run judged: the hash of the files that run, whatever is written about them later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from npu_upgrade.evidence.manifest import file_sha256
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.errors import BadInput

_RUNS = {".py", ".so", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".sh", ".jinja", ".yaml", ".yml", ".json"}
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
