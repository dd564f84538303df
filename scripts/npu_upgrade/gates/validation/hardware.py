"""One file that validates an upgrade on a machine that cannot be reached: ``python3 FILE`` there.

A zip that Python runs: this bundle, the downstream checkout at its commit with the upgrade's files, and the
job with its evidence so far. It needs no network and no git there, only the interpreter that serves.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from npu_upgrade.ground.files import sha256, write_atomic
from npu_upgrade.ground.paths import PACKAGE, SKILL

PROGRAM = Path(__file__).with_name("pack_program.py")
SHIPPED = ("scripts/upgrade.py", "scripts/adapt.py", "pyproject.toml", "SKILL.md")


def write(
    target: Path,
    job: str,
    version: str,
    arguments: Sequence[str],
    files: Mapping[str, bytes],
    gone: Sequence[str],
) -> None:
    """Write the file, whole or not at all; raises :class:`BadInput` for a place that cannot be written.

    ``version`` is the downstream project's, ``arguments`` those of validate. ``files``: ``checkout.tar``, and
    what is laid over it, ``checkout/PATH``; the paths ``gone`` are removed from it.
    """
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-pack-") as scratch:
        skill = shipment(Path(scratch) / "skill")
        own = {path.relative_to(scratch).as_posix(): path.read_bytes() for path in files_below(skill)}
    members = {**files, **own}
    hashes = {name: sha256(data) for name, data in members.items()}
    index = {
        "job": job,
        "version": version,
        "arguments": list(arguments),
        "gone": list(gone),
        "files": hashes,
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", PROGRAM.read_bytes())
        archive.writestr("pack.json", json.dumps(index, indent=2))
        for name, data in members.items():
            archive.writestr(name, data)
    write_atomic(target, b"#!/usr/bin/env python3\n" + packed.getvalue())


def shipment(folder: Path) -> Path:
    """What another machine needs of this bundle, copied into a new folder."""
    (folder / "scripts").mkdir(parents=True)
    for name in SHIPPED:
        shutil.copy(SKILL / name, folder / name)
    for source, name in ((SKILL / "emulator", "emulator"), (PACKAGE, f"scripts/{PACKAGE.name}")):
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "bundle"))
    return folder


def files_below(folder: Path) -> list[Path]:
    """All files in a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
