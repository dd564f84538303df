"""One file that validates an upgrade on a machine that cannot be reached: ``python3 FILE`` there.

A zip that Python runs: this bundle, the downstream checkout at its commit with the upgrade's files, and the
job with its evidence so far. It needs no network and no git there, only the interpreter that serves.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_upgrade.gates.validation.rungs import SCRIPT
from npu_upgrade.ground.files import sha256, write_atomic

PROGRAM = Path(__file__).with_name("pack_program.py")
SCHEMA = "npu-upgrade/hardware/1"
SHIPPED = ("scripts", "emulator", "pyproject.toml", "SKILL.md")


@dataclass(frozen=True)
class Shipped:
    """What is validated elsewhere.

    ``archive``: a tar of the checkout at ``commit``. ``planned``: the upgrade's files, None for one that it
    deletes. ``state``: files below ``.npu-upgrade``. ``beside``: files that ``arguments`` name; those words
    begin with ``{files}/``. ``package``: the one that has to be imported from the checkout.
    """

    job: str
    commit: str
    version: str
    package: str
    archive: Path
    planned: Mapping[str, bytes | None]
    state: Mapping[str, bytes]
    beside: Mapping[str, bytes]
    arguments: Sequence[str]


def write(shipped: Shipped, target: Path) -> None:
    """Write the file, whole or not at all; raises :class:`BadInput` for a place that cannot be written."""
    members = {f"planned/{name}": data for name, data in shipped.planned.items() if data is not None}
    members |= {f"state/{name}": data for name, data in shipped.state.items()}
    members |= {f"files/{name}": data for name, data in shipped.beside.items()}
    members["checkout.tar"] = shipped.archive.read_bytes()
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-pack-") as scratch:
        skill = shipment(Path(scratch) / "skill")
        for path in sorted(path for path in skill.rglob("*") if path.is_file()):
            members[f"skill/{path.relative_to(skill).as_posix()}"] = path.read_bytes()
        index = {
            "schema": SCHEMA,
            "job": shipped.job,
            "commit": shipped.commit,
            "arguments": list(shipped.arguments),
            "deleted": [name for name, data in shipped.planned.items() if data is None],
            "distribution": _distribution(shipped),
            "files": {name: sha256(data) for name, data in members.items()},
        }
        packed = Path(scratch) / "packed"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("__main__.py", PROGRAM.read_bytes())
            archive.writestr("pack.json", json.dumps(index, indent=2))
            for name, data in members.items():
                archive.writestr(name, data)
        write_atomic(target, b"#!/usr/bin/env python3\n" + packed.read_bytes())


def shipment(folder: Path) -> Path:
    """What another machine needs of this bundle, copied into a new folder."""
    root = SCRIPT.parents[1]
    folder.mkdir()
    for name in SHIPPED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder


def _distribution(shipped: Shipped) -> dict[str, Any]:
    """What an editable install would write of the checkout: name, version, entry points."""
    project: dict[str, Any] = {}
    with tarfile.open(shipped.archive) as tar:
        if "pyproject.toml" in tar.getnames() and (stream := tar.extractfile("pyproject.toml")):
            project = tomllib.loads(stream.read().decode("utf-8")).get("project", {})
    groups = {"console_scripts": project.get("scripts", {})} | project.get("entry-points", {})
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    name = project.get("name") or shipped.package.replace("_", "-")
    return {"name": name, "version": shipped.version, "entry_points": "\n".join(lines) + "\n"}
