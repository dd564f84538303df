"""How far the adaptation of a model is, from its state and the evidence of its runs, and what comes next.

The state is ``.npu-upgrade/adapt/<model>/``, written by ``adapt.py analyze`` and ``adapt.py plan``; the
runs are those of the workspace's evidence whose model is this one. Decides nothing and writes nothing.
"""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_upgrade.deliver.chain import Record
from npu_upgrade.errors import BadInput
from npu_upgrade.evidence.store import Store
from npu_upgrade.files import read_object
from npu_upgrade.paths import WORKSPACE_DIR

TODO, DONE, FAILED = "todo", "done", "failed"
# name, gate, load format of the run that proves it
_RUNS = (
    ("serve dummy", "serve", "dummy"),
    ("serve real", "serve", "real"),
    ("features", "features", "real"),
    ("capacity", "capacity", "real"),
)
# what is written at the end: the option that says where, and the file of the state that says it is done
_FILES = {"artifacts": ("--tree", "artifacts.json"), "deliver": ("--repo", "delivered.json")}


@dataclass(frozen=True)
class Stage:
    """One stage: ``state`` is todo, done or failed, ``said`` what is known, ``command`` what runs it.

    ``failed`` counts the runs that did not pass since the last one that did.
    """

    name: str
    state: str
    said: str
    command: str
    failed: int = 0


def models(workspace: Path) -> list[str]:
    """The models with a state, the one that was worked on last at the end."""
    folders = [path for path in (workspace / WORKSPACE_DIR / "adapt").glob("*") if path.is_dir()]
    return [path.name for path in sorted(folders, key=_touched)]


def stages(workspace: Path, model: str) -> list[Stage]:
    """All stages of a model, in order; :class:`BadInput` when no such model was begun."""
    folder = workspace / WORKSPACE_DIR / "adapt" / model
    if model not in models(workspace):
        known = ", ".join(models(workspace)) or "none was begun"
        raise BadInput(
            f"no adaptation of {model!r} in {workspace}",
            expected=f"one of: {known}",
            try_="adapt.py analyze MODEL begins one",
        )
    plan, analysis = read_object(folder / "plan.json"), read_object(folder / "analysis.json")
    where = str(plan.get("model") or analysis.get("model") or model)
    found = [
        Stage(
            "analyze",
            DONE if analysis else TODO,
            str(analysis.get("verdict", "")),
            _command("analyze", where),
        ),
        Stage("plan", DONE if plan else TODO, _strategy(plan), _command("plan", where)),
    ]
    runs = list(_runs(workspace, where, str(plan.get("name") or model)))
    found += [_of_runs(name, gate, load, where, runs) for name, gate, load in _RUNS]
    delivery = read_object(folder / "artifacts.json").get("trees") or _delivery(plan)
    for name, (option, file) in _FILES.items():
        if _there(name):
            command = shlex.join(["adapt.py", name, where, option, next(iter(delivery), "DIR")])
            said = str(read_object(folder / file).get("commit") or "")
            found.append(Stage(name, DONE if (folder / file).is_file() else TODO, said, command))
    return found


def next_stage(found: list[Stage]) -> Stage | None:
    """The first stage that is not done; None when all are."""
    return next((stage for stage in found if stage.state != DONE), None)


def _of_runs(name: str, gate: str, load: str, where: str, runs: list[tuple[Record, dict[str, Any]]]) -> Stage:
    """A stage that a run proves: the newest one of its gate and weights counts."""
    fits = [(record, result) for record, result in runs if _is(record, result, gate, load)]
    options = ["--load-format", "dummy"] if load == "dummy" else []
    command = shlex.join(["adapt.py", gate, where, *options])
    if not fits:
        return Stage(name, TODO, "", command)
    record, result = fits[-1]
    if record.verdict == "PASS":
        return Stage(name, DONE, f"{record.label}: {record.summary}", command)
    root = result.get("root") or {}
    cause = f"; root cause: {root.get('cause')}; {root.get('next')}" if root.get("cause") else ""
    said = f"{record.label}: {record.verdict}: {record.summary}{cause}"
    passed = [number for number, (one, _) in enumerate(fits, 1) if one.verdict == "PASS"]
    return Stage(name, FAILED, said, command, len(fits) - max(passed, default=0))


def _is(record: Record, result: dict[str, Any], gate: str, load: str) -> bool:
    return record.gate == gate and (result.get("load_format") or record.label.rpartition(" ")[2]) == load


def _runs(workspace: Path, where: str, name: str) -> Iterator[tuple[Record, dict[str, Any]]]:
    """The runs of this model, oldest first; raises :class:`BadInput` when the ledger was edited."""
    store = Store(workspace / WORKSPACE_DIR / "evidence")
    if not store.folder.is_dir():
        return
    for id_, record in store.records().items():
        result = read_object(store.runs / id_ / "result.json")
        if where == str(result.get("model")) or result.get("model_name") == name:
            yield record, result


def _strategy(plan: dict[str, Any]) -> str:
    strategy = plan.get("strategy")
    return str(strategy.get("name", "")) if isinstance(strategy, dict) else ""


def _delivery(plan: dict[str, Any]) -> list[str]:
    """The checkout that the plan delivers to, when it is there."""
    trees = plan.get("trees")
    delivery = trees.get("delivery") if isinstance(trees, dict) else None
    return [str(delivery["root"])] if isinstance(delivery, dict) and delivery.get("there") else []


def _command(name: str, where: str) -> str:
    return shlex.join(["adapt.py", name, where])


def _there(name: str) -> bool:
    """Whether the program has such a command."""
    return importlib.util.find_spec(f"npu_upgrade.commands.adapt.{name}") is not None


def _touched(folder: Path) -> float:
    return max((path.stat().st_mtime for path in folder.glob("*.json")), default=0.0)
