"""What the store holds: environments, and the folders that emulated runs keep beside them."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from npu_upgrade.environments.store import STAMP, envs_folder, read_stamp
from npu_upgrade.environments.venvs import megabytes
from npu_upgrade.ground import locks
from npu_upgrade.ground.paths import cache_root

_DAY = 24 * 3600.0
_STAMPS = (STAMP, "npu-upgrade-package.json")
_KEPT = {"packages": "a package to import", "native": "native parts"}


@dataclass(frozen=True)
class Entry:
    """One folder of the store. ``used`` is the time of the last use, in seconds since the epoch.

    ``size_mb`` is None for an environment that is not complete.
    """

    name: str
    kind: str
    path: Path
    complete: bool
    used: float
    size_mb: int | None

    def as_json(self) -> dict[str, Any]:
        used = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.used))
        return {
            "name": self.name,
            "kind": self.kind,
            "complete": self.complete,
            "size_mb": self.size_mb,
            "last_used": used,
            "path": str(self.path),
        }

    def unused_for(self, days: float) -> bool:
        return time.time() - self.used > days * _DAY


def entries() -> list[Entry]:
    """All that the store holds, environments first, by name."""
    kept = cache_root().absolute() / "emulation"
    folders = [("environment", envs_folder()), *((kind, kept / name) for name, kind in _KEPT.items())]
    return [
        entry
        for kind, folder in folders
        for entry in sorted(_in(folder, kind), key=lambda one: one.path.name)
    ]


def _in(folder: Path, kind: str) -> Iterator[Entry]:
    for path in folder.iterdir() if folder.is_dir() else ():
        # it may be the scratch folder of a running build, which has no lock of its own
        made = path.name.startswith(".unfinished-") and time.time() - path.stat().st_mtime < _DAY
        if path.is_dir() and not made:
            stamp = next((path / name for name in _STAMPS if (path / name).is_file()), None)
            used = (stamp or path).stat().st_mtime
            measured = read_stamp(path).get("size_mb") if kind == "environment" else None
            if stamp and not isinstance(measured, int):
                measured = megabytes(path)
            name = path.name.rpartition("-")[0] or path.name
            yield Entry(name, kind, path, stamp is not None, used, measured)


def remove(entry: Entry, *, dry_run: bool = False) -> int | None:
    """Remove the folder and its lock file; the MB that frees, or None when a process uses it."""
    with locks.alone_now(entry.path) as alone:
        if not alone or _runs(entry.path):
            return None
        freed = megabytes(entry.path, freed=True)
        if not dry_run:
            # the stamp first: should this be interrupted, nobody takes the rest for complete
            for name in _STAMPS:
                (entry.path / name).unlink(missing_ok=True)
            shutil.rmtree(entry.path)
    if not dry_run:
        locks.lock_file(entry.path).unlink(missing_ok=True)
    return freed


def _runs(folder: Path) -> bool:
    """Whether a process was started from the folder, as make's are, which hold no lock."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if command and command[0].startswith(f"{folder}/"):
                return True
    return False
