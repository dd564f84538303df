"""The change of a root that is not delivered here, as a patch file for the other project."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.artifacts.roots import Root
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256, write_atomic

_HEAD = "# adapt.py deliver:"


@dataclass(frozen=True)
class Patch:
    """``data`` applies with git apply on ``base``."""

    project: str
    base: str
    path: Path
    data: bytes

    @property
    def sha256(self) -> str:
        return sha256(self.data)

    def write(self) -> None:
        """Put the file there; raises :class:`BadInput` rather than replace a file of somebody else."""
        self.check()
        write_atomic(self.path, self.data)

    def check(self) -> None:
        """Raise :class:`BadInput` when a file of somebody else is in the way."""
        if self.path.exists() and not self.path.read_bytes().startswith(_HEAD.encode()):
            raise BadInput(
                f"{self.path} is there, and not a patch that was exported",
                expected="no file of that name, or an exported patch",
                try_="--patch-dir DIR, or move the file away",
            )


def export(root: Root, paths: list[str], folder: Path, name: str) -> Patch:
    """The patch of ``paths``, not written yet; git skips its first line."""
    head = f"{_HEAD} {root.project}, on {root.base}; git apply takes this file as it is\n"
    return Patch(
        root.project, root.base, folder / f"{name}-{root.project}.patch", head.encode() + root.diff(paths)
    )
