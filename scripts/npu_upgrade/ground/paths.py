"""Where things live outside the installed skill: the cache, and a job's workspace.

The skill's own folder is wiped by every reinstall, so nothing is ever written there. A wheel has it beside
the code, in ``bundle``, laid out as in the repository.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
FROM_WHEEL = (PACKAGE / "bundle").is_dir()
SKILL = PACKAGE / "bundle" if FROM_WHEEL else PACKAGE.parents[1]  # the folder with SKILL.md
APP = "npu-upgrade"
WORKSPACE_DIR = ".npu-upgrade"
WORK_DIR = Path("/workspace")  # where servers are started in the images for NPUs


def cache_root() -> Path:
    """The cache folder: ``$XDG_CACHE_HOME/npu-upgrade`` (default ``~/.cache``)."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / APP


def models_folder(workspace: Path) -> Path:
    """Where a workspace keeps a folder for each model that is adapted in it; not made here."""
    return workspace.absolute() / WORKSPACE_DIR / "adapt"


def python_of(environment: Path) -> Path:
    """The interpreter of a virtual environment."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def workspace_root(workspace: Path) -> Path:
    """The job folder of a workspace, created on first use and kept out of its git.

    A ``.gitignore`` inside it hides the folder, so the user's own files stay untouched.
    """
    root = workspace / WORKSPACE_DIR
    root.mkdir(parents=True, exist_ok=True)
    ignore = root / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return root


def from_here(path: Path) -> Path:
    """``path`` from the present folder, where it is in it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
