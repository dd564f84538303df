"""What the last `discover` of a folder found, for those who come after it; kept in the cache alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.ground.command import Command, current
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import json_text, sha256, write_atomic
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.job import open_job


class Discovered(msgspec.Struct, frozen=True):
    """How it ended: ``question`` is for a person, ``next`` an argv, ``again`` the one that was run."""

    verdict: str
    summary: str
    question: dict[str, Any] | None
    next: list[str]
    again: list[str]


def keep(result: Result, folders: list[Path]) -> None:
    """Remember it for the folders that it is about."""
    question = result.data.get("question")
    argv = result.next.argv if result.next else []
    found = Discovered(result.verdict.value, result.summary, question, argv, current())
    for folder in folders:
        write_atomic(_place(folder), json_text(msgspec.to_builtins(found)))


def not_gone_on(workspace: Path) -> Result | None:
    """What is next after a `discover` that nothing followed.

    That is every one where there is no job, and of a job the one that did not pass since it was worked on.
    """
    near = [folder for folder in workspace.absolute().parents if (folder / ".git").exists()]
    place = next((p for p in map(_place, [workspace, *near[:1]]) if p.exists()), None)
    if place is None:
        return None
    found = msgspec.json.decode(place.read_bytes(), type=Discovered)
    try:
        journal = open_job(workspace).journal.path
    except BadInput:
        return _told(found)
    followed = journal.exists() and journal.stat().st_mtime_ns > place.stat().st_mtime_ns
    return None if followed or found.verdict == "PASS" else _told(found)


def _told(found: Discovered) -> Result:
    if found.verdict == "PASS":
        why = f"discover passed, nothing is merged yet: {found.summary}"
        return Result(Verdict.PASS, why, {"step": "run"}, next=Command.of(found.next or found.again))
    todo = "ask a person" if found.question else "do what it says, then run discover again"
    why = f"discover ended {found.verdict}, {todo}: {found.summary}"
    data: dict[str, Any] = {"step": "stop", "question": found.question}
    return Result(Verdict.INCONCLUSIVE, why, data, next=Command.of(found.next or found.again))


def _place(folder: Path) -> Path:
    return cache_root() / "discover" / f"of-{sha256(os.fspath(folder.absolute()))[:16]}.json"
