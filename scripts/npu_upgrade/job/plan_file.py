"""``plan.json``, which merge and plan leave in a job's output folder, as far as delivery reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.subject import Subject, check_path, subject_of
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.job.job import Job

SCHEMA = "npu-upgrade/plan/1"


@dataclass(frozen=True)
class Plan:
    """``versions``: omni, ascend, base -> identity (base may be None).

    ``files``: repo-relative path -> whether the upgrade keeps it (False: it deletes it,
    ``sha256_merged`` is null). ``methods`` and ``items`` as written there. ``hashes``: the
    content of each file when it was last checked, else when it was merged. ``runners``: the
    path and the class of each runner, by its kind.
    """

    versions: dict[str, dict[str, Any] | None]
    files: dict[str, bool]
    methods: list[dict[str, Any]]
    items: list[dict[str, Any]]
    conflicts_open: int
    hashes: dict[str, str] = field(default_factory=dict)
    runners: dict[str, dict[str, str]] = field(default_factory=dict)

    def subject(self, root: Path) -> Subject:
        """What evidence about this upgrade is bound to: all files of the plan as they are below ``root``."""
        return subject_of(root, self.files)

    def items_in(self, state: str) -> list[dict[str, Any]]:
        return [item for item in self.items if item.get("state") == state]


def load_plan(job: Job) -> Plan:
    """The plan of a job; raises :class:`BadInput` when merge has not written one that can be read."""
    path = Path(job.out or job.folder) / "plan.json"
    try:
        value = json.loads(path.read_text("utf-8"))
        if value["schema"] != SCHEMA:
            raise ValueError(f"schema {value['schema']}, not {SCHEMA}")
        files = {entry["path"]: entry["sha256_merged"] is not None for entry in value["files"]}
        methods, items = value.get("methods", []), value.get("items", [])
        hashes = {e["path"]: e.get("sha256_now") or e["sha256_merged"] or "" for e in value["files"]}
        plan = Plan(dict(value["versions"]), files, methods, items, value["conflicts_open"], hashes)
        plan.runners.update(value.get("runners", {}))
    except FileNotFoundError as error:
        raise BadInput(
            f"job {job.id} has no plan: {path} is missing",
            expected="plan.json, which merge writes",
            try_="upgrade.py next",
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"cannot read {path}: {error!r}",
            expected=f"a plan as merge wrote it ({SCHEMA})",
            try_="run upgrade.py merge again",
        ) from error
    for name in files:
        check_path(name)
    return plan
