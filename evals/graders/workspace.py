"""A finished workspace: the checkout that an agent was given, and what it left in it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from npu_upgrade.cli.calls import Call, calls
from npu_upgrade.ground.paths import WORKSPACE_DIR


@dataclass(frozen=True)
class Workspace:
    """``base`` is the commit that the agent was given, a branch or a SHA; ``answer`` its last message."""

    root: Path
    base: str = "main"
    answer: str = ""

    def git(self, *args: str) -> str:
        """What git says; empty where it refuses."""
        command = ["git", "-c", "core.quotepath=false", *args]
        done = subprocess.run(
            command, cwd=self.root, capture_output=True, encoding="utf-8", errors="replace", check=False
        )
        return done.stdout if done.returncode == 0 else ""

    @cached_property
    def commits(self) -> list[str]:
        """The commits on top of the base, newest first."""
        return self.git("rev-list", f"{self.base}..HEAD").split()

    @cached_property
    def changed(self) -> list[str]:
        """The files that differ between the base and HEAD."""
        return [
            path
            for path in self.git("diff", "--name-only", "--no-renames", f"{self.base}..HEAD").split("\n")
            if path
        ]

    @cached_property
    def dirty(self) -> list[str]:
        """What git status lists."""
        return [line for line in self.git("status", "--porcelain").split("\n") if line]

    @cached_property
    def calls(self) -> list[Call]:
        """The calls of the skill, by its own journal."""
        return calls(self.root / WORKSPACE_DIR)

    @cached_property
    def delivered(self) -> list[tuple[str, str]]:
        """When something was delivered, and the tree that it has, by the journals of the jobs."""
        found = []
        for journal in sorted((self.root / WORKSPACE_DIR).glob("jobs/*/journal.jsonl")):
            for line in journal.read_text("utf-8").splitlines():
                entry = json.loads(line)
                tree = (entry.get("outputs") or {}).get("tree")
                if (entry.get("kind"), entry.get("stage")) == ("ended", "deliver") and tree:
                    found.append((entry["at"], tree))
        return sorted(found)

    @cached_property
    def words(self) -> str:
        """All that the agent says: its commits' messages and its answer."""
        return "\n\n".join([*(self.message(one) for one in self.commits), self.answer])

    def message(self, commit: str) -> str:
        return self.git("show", "-s", "--format=%B", commit)

    def before(self, path: str) -> str:
        return self.git("show", f"{self.base}:{path}")

    def after(self, path: str) -> str:
        return self.git("show", f"HEAD:{path}")
