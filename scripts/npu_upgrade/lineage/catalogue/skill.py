"""Where this skill lies, and whether its own files may be written."""

from __future__ import annotations

from pathlib import Path

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.paths import SKILL
from npu_upgrade.lineage.catalogue.reference import NAME
from npu_upgrade.sources.git import Repo


def reference_to_refresh(root: Path | None = None) -> Path:
    """The reference of a source checkout of this skill.

    Raises :class:`BadInput` for an installed skill: the next installation would wipe what was written there.
    """
    root = root or SKILL
    reason = _why_not(root)
    if reason:
        raise BadInput(
            f"{root} is no source checkout of this skill: {reason}",
            expected="a git clone of the skill's own repository, outside an agent's folder of skills",
            try_="run scripts/upgrade.py of such a clone; for a catalogue of your own, --out DIR",
        )
    return root / "references" / NAME


def _why_not(root: Path) -> str:
    """Why a folder is no source checkout, empty when it is one."""
    if root.parent.name == "skills" and any(part.startswith(".") for part in root.parts[:-2]):
        return "it lies in an agent's folder of skills"
    try:
        repo = Repo(root)
        files = repo.files(repo.resolve("HEAD"))
    except BadInput as error:
        return error.what
    wanted = ("SKILL.md", "pyproject.toml", "scripts/upgrade.py")
    missing = [path for path in wanted if path not in files]
    return f"its commit has no {missing[0]}" if missing else ""
