"""The environment store: named Python environments in the cache folder, made on first use.

A folder's name carries a hash of all it was made from, so a changed requirement makes a new
environment beside the old one. A stamp, written last, says that it is complete: a folder without
its stamp is made anew, and pip's own cache then spares the downloads. Standard library only, as this
runs before any dependency exists. It must not know what an environment is for.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from npu_upgrade.errors import Blocked
from npu_upgrade.paths import cache_root
from npu_upgrade.progress import say

STAMP = "npu-upgrade-env.json"


class EnvSpec(NamedTuple):
    """What an environment is made from: PEP 508 requirements, and the free disk space its making needs."""

    name: str
    requirements: tuple[str, ...]
    size_mb: int = 200

    @property
    def identity(self) -> str:
        """All that decides what gets installed, as JSON; also the text of the stamp."""
        made_from = {
            "name": self.name,
            "requirements": sorted(self.requirements),
            "python": f"{sys.implementation.name}-{sys.version_info[0]}.{sys.version_info[1]}",
            "platform": f"{sys.platform}-{os.uname().machine}",
        }
        return json.dumps(made_from, indent=2, sort_keys=True) + "\n"

    @property
    def folder(self) -> Path:
        """Where the environment lives: ``<cache>/envs/<name>-<hash>``, absolute."""
        digest = hashlib.sha256(self.identity.encode()).hexdigest()[:12]
        return cache_root().absolute() / "envs" / f"{self.name}-{digest}"

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"


def ensure(spec: EnvSpec) -> Path:
    """The interpreter of a complete environment, which is made first when it is missing or damaged.

    Two processes may ask at once: one makes it, the other waits. Raises :class:`Blocked` when the disk,
    the network or the package index stops it; the next call then starts over from pip's cache.
    """
    if not _is_ready(spec):
        with _locked(spec.folder) as lock:
            if not _is_ready(spec):
                _make(spec, lock)
    return spec.python


def _is_ready(spec: EnvSpec) -> bool:
    try:
        if (spec.folder / STAMP).read_text(encoding="utf-8") != spec.identity:
            return False
        # the system's Python, which this one links to, may have been removed or replaced since
        started = subprocess.run(
            [spec.python, "-I", "-S", "-c", ""], stdin=subprocess.DEVNULL, capture_output=True
        )
    except OSError:
        return False
    return started.returncode == 0


@contextmanager
def _locked(folder: Path) -> Generator[int]:
    """Hold the folder's lock; yields the descriptor that holds it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        handle = open(f"{folder}.lock", "w")  # noqa: SIM115 - closed below, outside of this try
    except OSError as error:
        raise Blocked(
            f"cannot write to the cache folder {folder.parent}: {error.strerror}",
            expected="a cache folder this user may write to",
            try_="fix its permissions, or point XDG_CACHE_HOME at another folder",
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is making {folder.name}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle.fileno()


def _make(spec: EnvSpec, lock: int) -> None:
    # here, not on top: every warm start would pay for what only a cold one needs
    import shutil

    from npu_upgrade.envs.venvs import create_venv, install

    if spec.folder.exists():
        shutil.rmtree(spec.folder)
    free_mb = shutil.disk_usage(spec.folder.parent).free // 1_000_000
    if free_mb < spec.size_mb:
        raise Blocked(
            f"no room for the Python environment {spec.name!r}: {free_mb} MB free in {spec.folder.parent}",
            expected=f"{spec.size_mb} MB",
            try_="free some space, or point XDG_CACHE_HOME at a larger disk",
        )
    say(f"making the Python environment {spec.name!r} in {spec.folder} (once; later calls reuse it)")
    create_venv(spec.folder, lock)
    install(spec.python, spec.requirements, lock)
    (spec.folder / STAMP).write_text(spec.identity, encoding="utf-8")
    say(f"the Python environment {spec.name!r} is ready")
