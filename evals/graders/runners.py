"""The runner files of a finished upgrade, beside what the maintainers made of the same upgrade by hand.

Statements are counted as the replay benchmark counts them: by their canonical text.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

from bench.replay_score import FEWEST, keys, total, union
from graders.score import Score
from graders.workspace import Workspace
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import undefined_names
from npu_upgrade.lineage.downstream import Runner, find_upstream, runners_of
from npu_upgrade.lineage.history import upstream_unit
from npu_upgrade.lineage.marker_places import is_fence
from npu_upgrade.sources.tree import SourceTree, open_source

_IMPORTS = ("import ", "from ")  # one statement of several names: another set is another statement
UNASKED = 20
"""So many statements that no side has cost the whole point."""


@dataclass(frozen=True)
class Method:
    """The statements of one copied method in all versions."""

    name: str
    base: Counter[str]
    ours: Counter[str]
    theirs: Counter[str]
    human: Counter[str]
    result: Counter[str]


def recall(workspace: Workspace, spec: dict[str, Any]) -> Score:
    """Of the statements the maintainers took over from upstream, or dropped with it: how many are done."""
    wanted = done = 0
    for method in _methods(workspace, spec):
        added = (method.human - method.ours) & method.theirs
        dropped = (method.ours - method.human) & (method.base - method.theirs)
        wanted += total(added) + total(dropped)
        done += total(added & method.result) + total(dropped & (method.ours - method.result))
    if wanted < FEWEST:
        return Score("recall", None, f"only {wanted} statements to take over: a ratio says nothing")
    return Score("recall", done / wanted, f"{done} of {wanted} statements as the maintainers have them")


def unasked(workspace: Workspace, spec: dict[str, Any]) -> Score:
    """Statements that neither side, nor the GPU side, nor the maintainers have."""
    gpu = union(workspace.before(runner.gpu_path) for runner in _runners(spec))
    strange: Counter[str] = Counter()
    for path in _runner_files(workspace, spec):
        known = keys(workspace.before(path)) | gpu | _upstream(spec, "ascend") | keys(_human(spec).read(path))
        found = keys(workspace.after(path)) - known
        strange += Counter({key: number for key, number in found.items() if not key.startswith(_IMPORTS)})
    number = total(strange)
    shown = "; ".join(key[:60] for key in list(strange)[:3])
    return Score("unasked", max(0.0, 1 - number / UNASKED), f"{number} statements of no side {shown}".strip())


def names(workspace: Workspace, spec: dict[str, Any]) -> Score:
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


def markers(workspace: Workspace, spec: dict[str, Any]) -> Score:
    """The share of the markers around omni code that are still there, pairs left whole."""
    before = after = odd = 0
    for path in (runner.path for runner in _runners(spec)):
        was, now = _fences(workspace.before(path)), _fences(workspace.after(path))
        before += sum(was.values())
        after += sum(min(now.get(name, 0), number) for name, number in was.items())
        odd += sum(number % 2 == 1 and was.get(name, 0) % 2 == 0 for name, number in now.items())
    if not before:
        return Score("markers", None, "there were none")
    value = max(0.0, after / before - 0.25 * odd)
    return Score("markers", value, f"{after} of {before} markers kept, {odd} methods with an unpaired one")


def omni_kept(workspace: Workspace, spec: dict[str, Any]) -> Score:
    """Of the omni statements that the maintainers kept: how many are still there."""
    wanted = kept = 0
    for method in _methods(workspace, spec):
        omni = (method.ours - method.base - method.theirs) & method.human
        wanted, kept = wanted + total(omni), kept + total(omni & method.result)
    if wanted < FEWEST:
        return Score("omni_kept", None, f"only {wanted} omni statements")
    return Score("omni_kept", kept / wanted, f"{kept} of {wanted} omni statements kept")


def _methods(workspace: Workspace, spec: dict[str, Any]) -> list[Method]:
    """The methods of the runners that upstream's class has too."""
    human, found = _human(spec), []
    upstream = find_upstream(human)
    sides = {role: parse_module(_ascend(spec, role).read(upstream.path)).units for role in ("base", "ascend")}
    for runner in _runners(spec):
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


def _runner_files(workspace: Workspace, spec: dict[str, Any]) -> list[str]:
    return [runner.path for runner in _runners(spec) if runner.path in workspace.changed]


@cache
def _open(spec: str) -> SourceTree:
    return open_source(spec)


def _human(spec: dict[str, Any]) -> SourceTree:
    return _open(f"pypi:vllm-omni=={spec['setup']['human']}")


def _runners(spec: dict[str, Any]) -> tuple[Runner, ...]:
    return runners_of(_human(spec))


def _ascend(spec: dict[str, Any], role: str) -> SourceTree:
    return _open(f"pypi:vllm-ascend=={spec['setup'][role]}")


def _upstream(spec: dict[str, Any], role: str) -> Counter[str]:
    return keys(_ascend(spec, role).read(find_upstream(_human(spec)).path))
