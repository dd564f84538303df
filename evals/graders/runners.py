"""The runner files of a finished upgrade, beside what the maintainers made of the same upgrade by hand.

Statements are counted as the replay benchmark counts them: by their canonical text.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from functools import cache

from bench.replay_score import FEWEST, keys, total
from graders.score import Score
from graders.task import Task
from graders.workspace import Workspace
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import undefined_names
from npu_upgrade.lineage.downstream import Runner, omni_side
from npu_upgrade.lineage.history import upstream_unit
from npu_upgrade.lineage.marker_places import is_fence
from npu_upgrade.sources.tree import SourceTree, open_source


@dataclass(frozen=True)
class Method:
    """The statements of one copied method in all versions."""

    name: str
    base: Counter[str]
    ours: Counter[str]
    theirs: Counter[str]
    human: Counter[str]
    result: Counter[str]


def recall(workspace: Workspace, task: Task) -> Score:
    """Of the statements the maintainers took over from upstream, or dropped with it: how many are done."""
    wanted = done = 0
    for method in _methods(workspace, task):
        added = (method.human - method.ours) & method.theirs
        dropped = (method.ours - method.human) & (method.base - method.theirs)
        wanted += total(added) + total(dropped)
        done += total(added & method.result) + total(dropped & (method.ours - method.result))
    if wanted < FEWEST:
        return Score("recall", None, f"only {wanted} statements to take over: a ratio says nothing")
    return Score("recall", done / wanted, f"{done} of {wanted} statements as the maintainers have them")


def names(workspace: Workspace, task: Task) -> Score:
    """Every changed Python file parses, holds no conflict marker, and uses no name that nothing defines."""
    wrong = []
    for path in [path for path in workspace.changed if path.endswith(".py")]:
        text = workspace.after(path)
        try:
            ast.parse(text)
        except SyntaxError as error:
            wrong.append(f"{path} does not parse: line {error.lineno}")
            continue
        before = workspace.before(path)
        fresh = undefined_names(text) - (undefined_names(before) if before else set())
        wrong += [f"{path}: nothing defines {', '.join(sorted(fresh))}"] if fresh else []
    if not workspace.changed:
        return Score("names", 0.0, "nothing was committed")
    return Score("names", 0.0 if wrong else 1.0, "; ".join(wrong) or "all names are defined")


def markers(workspace: Workspace, task: Task) -> Score:
    """The share of the markers around omni code that are still there, pairs left whole."""
    before = after = odd = 0
    for path in (runner.path for runner in runners(task)):
        was, now = _fences(workspace.before(path)), _fences(workspace.after(path))
        before += sum(was.values())
        after += sum(min(now.get(name, 0), number) for name, number in was.items())
        odd += sum(number % 2 == 1 and was.get(name, 0) % 2 == 0 for name, number in now.items())
    if not before:
        return Score("markers", None, "there were none")
    value = max(0.0, after / before - 0.25 * odd)
    return Score("markers", value, f"{after} of {before} markers kept, {odd} methods with an unpaired one")


def omni_kept(workspace: Workspace, task: Task) -> Score:
    """Of the omni statements that the maintainers kept: how many are still there."""
    wanted = kept = 0
    for method in _methods(workspace, task):
        omni = (method.ours - method.base - method.theirs) & method.human
        wanted, kept = wanted + total(omni), kept + total(omni & method.result)
    if wanted < FEWEST:
        return Score("omni_kept", None, f"only {wanted} omni statements")
    return Score("omni_kept", kept / wanted, f"{kept} of {wanted} omni statements kept")


def _methods(workspace: Workspace, task: Task) -> list[Method]:
    """The methods of the runners that upstream's class has too."""
    human, found = _human(task), []
    upstream = omni_side(human).upstream
    sides = {role: parse_module(_ascend(task, role).read(upstream.path)).units for role in ("base", "ascend")}
    for runner in runners(task):
        ours, after = parse_module(workspace.before(runner.path)).units, _units(workspace.after(runner.path))
        for name, unit in parse_module(human.read(runner.path)).units.items():
            short = name.rpartition(".")[2]
            base, theirs = (
                upstream_unit(sides[role], upstream.class_name, short) for role in ("base", "ascend")
            )
            if name in ours and base and theirs:
                texts = (base.source, ours[name].source, theirs.source, unit.source, after.get(name, ""))
                found.append(Method(name, *map(keys, texts)))
    return found


def _units(text: str) -> dict[str, str]:
    try:
        return {name: unit.source for name, unit in parse_module(text).units.items()}
    except SyntaxError:
        return {}


def _fences(text: str) -> dict[str, int]:
    units = _units(text)
    return {
        name: sum(is_fence(line.strip()) for line in source.split("\n")) for name, source in units.items()
    }


def runner_files(workspace: Workspace, task: Task) -> list[str]:
    return [runner.path for runner in runners(task) if runner.path in workspace.changed]


@cache
def _open(text: str) -> SourceTree:
    return open_source(text)


def _human(task: Task) -> SourceTree:
    return _open(f"pypi:vllm-omni=={task.setup.human}")


def runners(task: Task) -> tuple[Runner, ...]:
    return omni_side(_human(task)).runners


def _ascend(task: Task, role: str) -> SourceTree:
    return _open(f"pypi:vllm-ascend=={getattr(task.setup, role)}")


def upstream_keys(task: Task, role: str) -> Counter[str]:
    return keys(_ascend(task, role).read(omni_side(_human(task)).upstream.path))
