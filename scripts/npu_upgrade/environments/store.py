"""The environment store: named Python environments in the cache folder, made on first use.

A folder's name carries a hash of all it was made from, so a changed requirement makes a new
environment beside the old one. A stamp, written last, says that it is complete: a folder without
its stamp is made anew, and the installer's own cache then spares the downloads. Its time is when the
environment was last used. Standard library only, as this runs before any dependency exists. It must
not know what an environment is for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from npu_upgrade.ground import locks
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.paths import cache_root, python_of
from npu_upgrade.ground.progress import say

STAMP = "npu-upgrade-env.json"


class EnvSpec(NamedTuple):
    """What an environment is made from: PEP 508 requirements, and the free disk space its making needs.

    A ``heavy`` one is installed by uv, with hard links into a package cache of the store's own;
    ``overrides`` are requirements that win over what any package asks for. ``aliases`` are (name, version)
    of distributions that are only told to be there. ``duration`` is for people.
    """

    name: str
    requirements: tuple[str, ...]
    size_mb: int = 200
    heavy: bool = False
    overrides: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    duration: str = ""

    @property
    def made_from(self) -> dict[str, Any]:
        """All that decides what gets installed, as data for JSON."""
        more = {"overrides": sorted(self.overrides), "aliases": [list(pair) for pair in sorted(self.aliases)]}
        return {
            "name": self.name,
            "requirements": sorted(self.requirements),
            "python": f"{sys.implementation.name}-{sys.version_info[0]}.{sys.version_info[1]}",
            "platform": f"{sys.platform}-{platform.machine()}",
        } | (more if self.heavy else {})

    @property
    def identity(self) -> str:
        """The same as JSON, which names the folder."""
        return json.dumps(self.made_from, indent=2, sort_keys=True) + "\n"

    @property
    def folder(self) -> Path:
        """Where the environment lives: ``<cache>/envs/<name>-<hash>``, absolute."""
        digest = hashlib.sha256(self.identity.encode()).hexdigest()[:12]
        return envs_folder() / f"{self.name}-{digest}"

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return python_of(self.folder)


def envs_folder() -> Path:
    """Where all environments are."""
    return cache_root().absolute() / "envs"


def ensure(spec: EnvSpec, *, inherited: bool = False) -> Path:
    """The interpreter of a complete environment, which is made first when it is missing or damaged.

    Until this process ends nobody may remove it (``inherited``: and after an exec). Two processes may ask
    at once: one makes it, the other waits. Raises :class:`Blocked` when the disk, the network or the
    package index stops it; the next call then starts over from the installer's cache.
    """
    locks.keep(spec.folder, lambda: is_ready(spec), lambda lock: _make(spec, lock), inherited=inherited)
    with contextlib.suppress(OSError):
        os.utime(spec.folder / STAMP)
    return spec.python


def is_ready(spec: EnvSpec) -> bool:
    """Whether the environment is complete and its interpreter starts."""
    stamp = read_stamp(spec.folder)
    if {name: stamp.get(name) for name in spec.made_from} != spec.made_from:
        return False
    try:
        # the system's Python, which this one links to, may have been removed or replaced since
        started = subprocess.run(
            [spec.python, "-I", "-S", "-c", ""], stdin=subprocess.DEVNULL, capture_output=True
        )
    except OSError:
        return False
    return started.returncode == 0


def read_stamp(folder: Path) -> dict[str, Any]:
    """What the stamp of an environment says, with ``size_mb``; empty when it is not complete."""
    with contextlib.suppress(OSError, ValueError):
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        return stamp if isinstance(stamp, dict) else {}
    return {}


def _make(spec: EnvSpec, lock: int) -> None:
    # here, not on top: every warm start would pay for what only a cold one needs
    import shutil
    import time

    from npu_upgrade.environments import venvs

    if spec.folder.exists():
        shutil.rmtree(spec.folder)
    _check_room(spec, shutil.disk_usage(spec.folder.parent).free // 1_000_000)
    say(f"note: making the Python environment {spec.name!r} in {spec.folder} ({_costs(spec)}made once)")
    begun = time.monotonic()
    if spec.heavy:
        venvs.create_heavy(spec, lock)
    else:
        venvs.create_venv(spec.folder, lock)
        venvs.install(spec.python, spec.requirements, lock)
    size = venvs.megabytes(spec.folder)
    stamp = spec.made_from | {"size_mb": size}
    (spec.folder / STAMP).write_text(json.dumps(stamp, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    say(f"the Python environment {spec.name!r} is ready ({size} MB, {time.monotonic() - begun:.0f} s)")


def _costs(spec: EnvSpec) -> str:
    if not spec.heavy:
        return ""
    return f"about {spec.size_mb / 1000:.1f} GB on disk{f', {spec.duration}' if spec.duration else ''}; "


def _check_room(spec: EnvSpec, free_mb: int) -> None:
    if free_mb < spec.size_mb:
        raise Blocked(
            f"no room for the Python environment {spec.name!r}: {free_mb} MB free in {spec.folder.parent}",
            expected=f"{spec.size_mb} MB",
            try_=f"free some space ({upgrade('env', 'prune').short} removes what was not used for long), "
            "or point XDG_CACHE_HOME at a larger disk",
        )
