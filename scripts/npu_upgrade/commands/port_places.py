"""Where ported files go: the checkout that was read, or a folder; nothing of the user's is overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256, write_together
from npu_upgrade.sources.spec import parse_spec


@dataclass(frozen=True)
class Place:
    """A folder that runner files go to; ``checkout`` tells that they were read from there."""

    folder: Path
    checkout: bool

    def path(self, name: str) -> Path:
        return self.folder / name

    def check(self, read: Mapping[str, str], files: Mapping[str, str], written: Mapping[str, str]) -> None:
        """Raise :class:`BadInput` when a file at its place is not the one that the hunks were taken into.

        ``read`` are the texts as they were read, ``written`` the hashes of what earlier ports
        left in folders, by absolute path.
        """
        for name, text in files.items():
            path = self.path(name)
            try:
                there = path.read_bytes() if path.exists() else None
            except OSError as error:
                raise BadInput(
                    f"cannot read {path}: {error.strerror or error}",
                    expected="a file that this user may read, or none",
                    try_="choose another folder with --out",
                ) from error
            fine = {sha256(read[name]), sha256(text)}
            fine |= set() if self.checkout else {written.get(str(path.absolute()), "")}
            if there is None and not self.checkout:
                continue
            if there is None or sha256(there) not in fine:
                raise BadInput(
                    f"{path} is not the file that was read, or was edited since",
                    expected="the runner file that the hunks were taken into",
                    try_=f"--omni dir:{self.folder}" if self.checkout else "another --out",
                )

    def write(self, files: Mapping[str, str]) -> None:
        """All files, or none when one cannot be written."""
        write_together({self.path(name): text for name, text in files.items()})

    def hashes(self, files: Mapping[str, str]) -> dict[Path, str]:
        return {self.path(name): sha256(text) for name, text in files.items()}


def find_place(omni: str, out: Path | None) -> Place:
    """The folder to write to; :class:`BadInput` for a release without ``out``."""
    if out is not None:
        if out.exists() and not out.is_dir():
            raise BadInput(
                f"--out {out} is a file", expected="a folder, or a free path", try_="another --out"
            )
        return Place(out.expanduser().absolute(), checkout=False)
    spec = parse_spec(omni)
    if spec.kind == "pypi":
        raise BadInput(
            f"{omni} is a release: there is no checkout to take hunks into",
            expected="--omni dir:PATH or git:PATH@REF, or --out DIR",
            try_="--out DIR to get the files in a folder",
        )
    return Place(Path(spec.path).expanduser().resolve(), checkout=True)
