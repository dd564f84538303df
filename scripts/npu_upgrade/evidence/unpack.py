"""Take over runs that another machine packed: nothing is believed before it is checked."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.evidence import chain, manifest
from npu_upgrade.evidence.chain import Record, canonical
from npu_upgrade.evidence.pack import INDEX, SCHEMA, Origin
from npu_upgrade.evidence.run_folder import PARTIAL
from npu_upgrade.evidence.store import Store
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256

_LARGEST = 8 << 30  # bytes that a pack may unfold to
_MOST_FILES = 10_000
_RETRY = "copy the pack again from the machine that made it, or pack the run again there"


def take(store: Store, source: Path, here: Origin | None = None) -> tuple[list[str], list[str]]:
    """Check a pack as a whole, then add its runs: (the new ones, those that were there already).

    ``here``: the upgrade of this workspace, which a pack of an upgrade has to be of. Raises
    :class:`BadInput` for anything that is not exactly as it was packed; nothing is added then.
    """
    store.runs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store.runs, prefix="import-", suffix=PARTIAL) as place:
        root = Path(place)
        _unfold(source, root)
        records, of = _index(source, root)
        if of and here and (wrong := _other(of, here, records)):
            raise _refused(
                source,
                f"it is of something else: {'; '.join(wrong)}",
                "runs of this upgrade, on the commit, files and evidence that are here",
                f"{upgrade('validate', '--npu', '--pack', 'FILE').short} here, and run that FILE there",
            )
        known = store.records()
        fresh = {id: record for id, record in records.items() if id not in known}
        for id, record in records.items():
            _check(source, id, record, root / "runs" / id)
            if id in known and known[id].data["manifest"] != record.data["manifest"]:
                raise _refused(
                    source, f"run {id} is here already with another content", "runs with ids of their own"
                )
        for id, record in fresh.items():
            shutil.rmtree(store.runs / id, ignore_errors=True)  # whole, but never recorded: its writer died
            (root / "runs" / id).rename(store.runs / id)
            chain.add(store.folder, _body(record))
    return list(fresh), [id for id in records if id not in fresh]


def _unfold(source: Path, root: Path) -> None:
    try:
        with tarfile.open(source, "r:gz") as archive:
            total = 0
            for count, member in enumerate(archive):
                total += member.size
                _check_member(source, member, root, total, count)
                target = root / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                stream = archive.extractfile(member)
                assert stream is not None
                with open(target, "xb") as out:
                    shutil.copyfileobj(stream, out)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise _refused(source, f"it cannot be read: {error}", "a pack that `evidence pack` wrote") from error


def _check_member(source: Path, member: tarfile.TarInfo, root: Path, total: int, count: int) -> None:
    if not member.isreg():
        raise _refused(
            source, f"{member.name!r} is no plain file", "plain files only, no links and no folders"
        )
    if not manifest.is_plain(member.name) or not (member.name == INDEX or member.name.startswith("runs/")):
        raise _refused(source, f"{member.name!r} leads out of the pack", f"{INDEX} and files below runs/")
    if (root / member.name).exists():
        raise _refused(source, f"{member.name!r} is in it twice", "each file once")
    if total > _LARGEST or count > _MOST_FILES:
        raise _refused(
            source, "it unfolds to more than a pack may hold", f"{_LARGEST >> 30} GB, {_MOST_FILES} files"
        )


def _other(of: Origin, here: Origin, records: Mapping[str, Record]) -> list[str]:
    """In which ways a pack is of another upgrade, or of another state of it, than the one here."""
    names = sorted(of.files.keys() | here.files.keys())
    files = [name for name in names if of.files.get(name) != here.files.get(name)]
    after = dict(zip(of.chain[1:], of.chain, strict=False))
    return [
        *([f"job {of.job}, not {here.job}"] if of.job != here.job else []),
        *([f"commit {of.commit[:12]}, not {here.commit[:12]}"] if of.commit != here.commit else []),
        *([f"files with other contents: {', '.join(files[:5])}"] if files else []),
        *(["a chain of evidence that did not begin here"] if of.chain[:1] != here.chain[:1] else []),
        *(
            f"{id} is not in the chain that it names"
            for id, one in records.items()
            if one.id not in of.chain or after.get(one.id) != one.previous
        ),
    ]


def _index(source: Path, root: Path) -> tuple[dict[str, Record], Origin | None]:
    try:
        index = json.loads((root / INDEX).read_text("utf-8"))
        if index["schema"] != SCHEMA:
            raise ValueError(f"schema {index['schema']!r}")
        records = {one["data"]["run"]: msgspec.convert(one, Record) for one in index["records"]}
        of = msgspec.convert(index.get("of"), Origin | None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _refused(
            source, f"{INDEX} is not the index of a pack: {error}", f"an index of {SCHEMA}"
        ) from error
    there = {path.name for path in (root / "runs").glob("*")}
    if not records or there != set(records):
        odd = ", ".join(sorted(there ^ set(records))) or "nothing"
        raise _refused(
            source, f"its index and its folders do not agree: {odd}", "a folder for each ledger line"
        )
    return records, of


def _check(source: Path, id: str, record: Record, folder: Path) -> None:
    plain = msgspec.to_builtins(record)
    if sha256(canonical({key: plain[key] for key in plain if key != "id"})) != record.id:
        raise _refused(source, f"the ledger line of {id} was changed", "the line as the gate wrote it")
    named = folder / manifest.NAME  # damage may have lost it, which the files then tell
    if named.is_file() and manifest.file_sha256(named) != record.data["manifest"]:
        raise _refused(source, f"the manifest of {id} was changed", "the manifest that its ledger line names")
    if wrong := manifest.differences(folder):
        raise _refused(
            source, f"files of {id} are not as they were recorded: {'; '.join(wrong[:3])}", "the same files"
        )


def _body(record: Record) -> dict[str, Any]:
    """The line as this ledger will have it: its own chain, and whose line it was."""
    plain = msgspec.to_builtins(record) | {"data": record.data | {"imported": record.id}}
    return {key: value for key, value in plain.items() if key not in ("id", "previous")}


def _refused(source: Path, what: str, expected: str, try_: str = _RETRY) -> BadInput:
    return BadInput(f"{source} is refused: {what}", expected=expected, try_=try_)
