"""A plugin that is delivered with a model has to be the one that the gates judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from npu_upgrade.artifacts.roots import PACKAGES
from npu_upgrade.evidence.judged import judged
from npu_upgrade.evidence.runs import REAL, Run
from npu_upgrade.ground.errors import BadInput

_OTHERS = {*PACKAGES.values(), "vllm_omni"}  # compared with their roots


def check_plugins(repo: Path, paths: Iterable[str], standing: Sequence[Run]) -> None:
    """Raise :class:`BadInput` where ``paths`` are of a plugin that real weights were served by otherwise."""
    runs = [run for run in standing if run.label in REAL and run.verdict == "PASS"]
    packages = {name for run in runs for name in run.judged} - _OTHERS
    for package in sorted({found for path in paths if (found := _package(path, packages))}):
        folder, name = repo / package, package.rpartition("/")[2]
        now = judged({name: folder})[0].files[name] if folder.is_dir() else None
        other = next((run for run in runs if run.judged.get(name, now) != now), None)
        if other:
            raise BadInput(
                f"the plugin {folder} is not what gate {other.gate} ({other.label}) judged",
                expected="a plugin that is delivered as it was served",
                try_=f"pip install -e {folder.parent}, and run the gate again",
            )


def _package(path: str, packages: set[str]) -> str | None:
    """The folder of the outermost of ``packages`` that a file of code lies in."""
    parts = PurePosixPath(path).parts[:-1]
    if not path.endswith(".py") or {"docs", "tests"}.intersection(parts):
        return None
    at = next((number for number, part in enumerate(parts, 1) if part in packages), None)
    return "/".join(parts[:at]) if at else None
