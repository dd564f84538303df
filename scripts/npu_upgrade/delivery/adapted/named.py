"""Which changes belong to a delivery: those that were planned, written or named, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from npu_upgrade.ground.errors import BadInput

_SHOWN = 5


@dataclass(frozen=True)
class Named:
    """``planned`` and ``include`` go in, ``leave`` stays out: paths, folders or patterns."""

    planned: tuple[str, ...]
    include: tuple[str, ...]
    leave: tuple[str, ...]

    def leaves(self, path: str) -> bool:
        return _fits(path, self.leave)

    def chosen(self, changed: Sequence[str], place: Path, own: Iterable[str] = ()) -> list[str]:
        """Those of ``changed`` that go in; raises :class:`BadInput` for one that nobody named.

        ``own`` are files that the delivery itself wrote at ``place``.
        """
        known, named = set(own), (*self.planned, *self.include)
        candidates = [path for path in changed if not self.leaves(path)]
        goes = [path for path in candidates if path in known or _fits(path, named)]
        others = [path for path in candidates if path not in goes]
        if others:
            more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
            raise BadInput(
                f"{place} has changes that nobody named: {', '.join(others[:_SHOWN])}{more}",
                expected="changes of the model only: planned by adapt.py, or named",
                try_=f"--include {others[0]} to deliver it, --leave {others[0]} to leave it where it is",
            )
        return goes


def planned_files(plan: Path) -> tuple[str, ...]:
    """The files and folders of the trees that the plan of the model changes, none when there is no plan.

    Those of a plugin are named from its own folder, wherever that lies.
    """
    try:
        value = json.loads(plan.read_text("utf-8"))
        files = [file for step in value["steps"] for file in step["files"]]
        return tuple(str(file["path"]) for file in files if file.get("root") != "plugin")
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _fits(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, one) or path.startswith(one.rstrip("/") + "/") for one in patterns)
