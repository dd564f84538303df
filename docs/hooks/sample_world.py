"""The invented packages of the sample report as git repositories in a folder, and commands that run there."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = ("vllm", "ascend", "omni")
RELEASES = {"old": "2026-01-01T12:00:00Z", "new": "2026-02-01T12:00:00Z"}
DELIVERED = "2026-02-02T12:00:00Z"
MOST_SAID = 3000


class SampleError(Exception):
    """The sample cannot be made: what was done, and what was said."""


class SampleWorld:
    """A clone of each project with a tag for each release, made of folders of sources.

    ``old`` holds a project whole, ``new`` only the files that are other ones in that release.
    """

    def __init__(self, folder: Path, sources: Path) -> None:
        self.folder = folder
        for project in PROJECTS:
            self._make_clone(sources / project, folder / project)

    def spec(self, project: str, release: str) -> str:
        return f"git:{self.folder / project}@{release}"

    def upgrade(self, *words: str, text: str = "", good: Sequence[int] = (0,)) -> dict[str, Any]:
        """What one command of ``upgrade.py`` printed, run in the clone of the runners."""
        command = [sys.executable, str(ROOT / "scripts" / "upgrade.py"), *words, "--format", "json"]
        return json.loads(self._call("omni", command, DELIVERED, text=text, good=good))

    def _make_clone(self, sources: Path, clone: Path) -> None:
        clone.mkdir()
        self._call(clone.name, ["git", "init", "-q", "-b", "main"], DELIVERED)
        for release, date in RELEASES.items():
            shutil.copytree(sources / release, clone, dirs_exist_ok=True)
            for words in (["add", "-A"], ["commit", "-q", "-m", f"The {release} release"], ["tag", release]):
                self._call(clone.name, ["git", *words], date)

    def _call(
        self, project: str, command: Sequence[str], date: str, *, text: str = "", good: Sequence[int] = (0,)
    ) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder / project,
            env=self._environment(date),
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in good:
            said = (done.stderr.strip() or done.stdout.strip())[-MOST_SAID:]
            raise SampleError(f"exit code {done.returncode} of {shlex.join(command)}\n{said}")
        return done.stdout

    def _environment(self, date: str) -> Mapping[str, str]:
        """This process's, with an author, a date and an empty cache in place of the machine's own."""
        known = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        for who in ("AUTHOR", "COMMITTER"):
            known[f"GIT_{who}_NAME"] = "A Maintainer"
            known[f"GIT_{who}_EMAIL"] = "maintainer@example.com"
            known[f"GIT_{who}_DATE"] = date
        alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        return known | alone | {"XDG_CACHE_HOME": str(self.folder / "cache")}
