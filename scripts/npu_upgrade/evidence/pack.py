"""Runs as one file that travels: their folders, their ledger lines, and nothing else."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from npu_upgrade.evidence.store import Store
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import json_text

INDEX = "pack.json"
SCHEMA = "npu-upgrade/pack/2"


class Origin(Struct, frozen=True):
    """The upgrade that runs are of: its job, the commit that it stands on, the hash of each of its files
    (:class:`npu_upgrade.evidence.subject.Subject`), and the ids of the whole chain, oldest first."""

    job: str
    commit: str
    files: dict[str, str]
    chain: list[str]


def pack(store: Store, ids: Sequence[str], target: Path, of: Origin | None = None) -> Path:
    """Write runs to ``target`` (tar.gz); raises :class:`BadInput` when a run is not as it was recorded.

    ``of``: the upgrade of this workspace, which the machine that takes them over has to have, too.
    """
    runs = [store.find(id) for id in dict.fromkeys(ids)]
    for record, folder in runs:
        if wrong := store.problems(record):
            raise BadInput(
                f"{folder.name} is not as it was recorded: {'; '.join(wrong[:3])}",
                expected="files as the gate wrote them",
                try_=f"{upgrade('evidence', 'check').short} shows all; run the gate again",
            )
    records = [msgspec.to_builtins(record) for record, _ in runs]
    index = {"schema": SCHEMA, "records": records} | ({"of": msgspec.to_builtins(of)} if of else {})
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with (
            os.fdopen(handle, "wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            data = json_text(index).encode()
            _add(archive, INDEX, io.BytesIO(data), len(data))
            for _, folder in runs:
                for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                    with open(path, "rb") as stream:
                        name = f"runs/{folder.name}/{path.relative_to(folder).as_posix()}"
                        _add(archive, name, stream, path.stat().st_size)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def _add(archive: tarfile.TarFile, name: str, stream: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)  # no owner, no time: the same run gives the same pack
    member.size = size
    archive.addfile(member, stream)
