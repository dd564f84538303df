"""The runner files of a finished upgrade, beside what the maintainers made of the same upgrade by hand.

Statements are counted as the replay benchmark counts them: by their canonical text.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from bench.replay_score import FEWEST, kept_as, keys, total, union
from graders.score import Score
from graders.task import Task
from graders.workspace import Workspace
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import undefined_names
from npu_upgrade.lineage.dialect import translate
from npu_upgrade.lineage.downstream import Runner, omni_side
from npu_upgrade.lineage.history import upstream_unit
from npu_upgrade.lineage.inference import infer
from npu_upgrade.lineage.marker_places import is_fence
from npu_upgrade.lineage.records import Lineage
from npu_upgrade.sources.tree import SourceTree, open_source

RELEASES = "pypi:vllm-ascend"


@dataclass(frozen=True)
class Method:
    """The statements of one copied method in all versions.

    ``base`` is the release that it was copied from.
    """

    name: str
    base: Counter[str]
    ours: Counter[str]
    theirs: Counter[str]
    human: Counter[str]
    result: Counter[str]

    def kept(self, wanted: Counter[str], changed: Counter[str]) -> int:
        """How many of the statements of ``wanted`` the result has, as they are or with more in them.

        A statement that both sides changed is one of neither; what ``wanted`` changed in that of ``changed``
        stands in it.
        """
        found = wanted & self.result
        fresh = self.result - self.ours - self.human
        number = total(found)
        for key in (wanted - found).elements():
            if version := kept_as(key, changed, fresh):
                fresh[version] -= 1
                fresh = +fresh
                number += 1
        return number


def recall(workspace: Workspace, task: Task) -> Score:
    """Of the statements the maintainers took over from upstream, or dropped with it: how many are done.

    What the maintainers took up again although upstream had it before and did not change it is no part of
    the upgrade: nothing tells that it is wanted.
    """
    wanted = done = 0
    for method in _methods(workspace, task):
        added = (method.human - method.ours) & method.theirs
        added -= method.base - method.ours
        dropped = (method.ours - method.human) & (method.base - method.theirs)
        wanted += total(added) + total(dropped)
        done += method.kept(added, method.ours) + total(dropped & (method.ours - method.result))
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
    """Of the omni statements that the maintainers kept: how many are still there.

    A statement that went to another method, or is combined with what upstream changed in it, is there. What
    the GPU side gave up since, and the upgrade with it, is not lost: a port brings the form it has there now.
    """
    wanted = kept = 0
    methods = _methods(workspace, task)
    moved = _gained(workspace, task)
    given_up = _given_up(workspace, task)
    for method in methods:
        omni = (method.ours - method.base - method.theirs) & method.human
        omni -= Counter({key: n for key, n in (omni - method.result).items() if key in given_up})
        elsewhere = (omni - method.result) & moved
        moved -= elsewhere
        wanted += total(omni)
        kept += total(elsewhere) + method.kept(omni - elsewhere, method.base)
    if wanted < FEWEST:
        return Score("omni_kept", None, f"only {wanted} omni statements")
    return Score("omni_kept", kept / wanted, f"{kept} of {wanted} omni statements kept")


def _methods(workspace: Workspace, task: Task) -> list[Method]:
    """The methods of the runners that upstream's class has too."""
    human, found = _human(task), []
    lineage = _lineage(f"git:{workspace.root}@{workspace.base}")
    history, upstream = lineage.history, omni_side(human).upstream
    target = parse_module(_target(task).read(upstream.path)).units
    for runner in runners(task):
        ours, after = parse_module(workspace.before(runner.path)).units, _units(workspace.after(runner.path))
        for name, unit in parse_module(human.read(runner.path)).units.items():
            entry = lineage.method(runner.path, name)
            theirs = entry and upstream_unit(target, upstream.class_name, entry.upstream)
            version = entry and (entry.best or (lineage.base and lineage.base.version))
            base = entry and version and history.unit(version, entry.upstream)
            if not (entry and theirs and base):
                continue
            texts = (base, ours[name].source, theirs.source, unit.source, after.get(name, ""))
            found.append(Method(name, *map(keys, texts)))
    return found


def _given_up(workspace: Workspace, task: Task) -> set[str]:
    """The statements that the GPU side's runners had in the release of the NPU side and have no more."""
    then, found = _open(f"pypi:vllm-omni=={task.setup.omni}"), set[str]()
    for path in filter(None, (runner.gpu_path for runner in runners(task))):
        texts = (then.read(path) if then.exists(path) else "", workspace.before(path))
        had, has = (in_both_words([text], task) for text in texts)
        found |= had.keys() - has.keys()
    return found


def _gained(workspace: Workspace, task: Task) -> Counter[str]:
    """The statements that methods of the runners have more of than they were given."""
    gained: Counter[str] = Counter()
    for path in (runner.path for runner in runners(task)):
        before, after = _units(workspace.before(path)), _units(workspace.after(path))
        for name, source in after.items():
            gained += keys(source) - keys(before.get(name, ""))
    return gained


def _units(text: str) -> dict[str, str]:
    try:
        return {name: unit.source for name, unit in parse_module(text).units.items()}
    except SyntaxError:
        return {}


def _fences(text: str) -> dict[str, int]:
    """The markers of each unit, those below its last statement in its own indentation among them."""
    try:
        units = parse_module(text).units
    except SyntaxError:
        return {}
    lines, found = text.split("\n"), {}
    for name, unit in units.items():
        indent = len(lines[unit.start]) - len(lines[unit.start].lstrip())
        end = unit.end
        while end < len(lines) and lines[end].startswith(" " * (indent + 1)):
            end += 1
        found[name] = sum(is_fence(line.strip()) for line in lines[unit.start : end])
    return found


def runner_files(workspace: Workspace, task: Task) -> list[str]:
    return [runner.path for runner in runners(task) if runner.path in workspace.changed]


@cache
def _open(text: str) -> SourceTree:
    return open_source(text)


def _human(task: Task) -> SourceTree:
    return _open(f"pypi:vllm-omni=={task.setup.human}")


def runners(task: Task) -> tuple[Runner, ...]:
    return omni_side(_human(task)).runners


def in_both_words(texts: Sequence[str], task: Task) -> Counter[str]:
    """The statements of texts of the GPU side, as they are and as a port brings them."""
    return union((*texts, *(in_npu_words(text, task) for text in texts)))


def in_npu_words(text: str, task: Task) -> str:
    """A text of the GPU side as a port brings it; the text itself where it is no Python."""
    try:
        return translate(text, omni_side(_human(task)).class_names)
    except SyntaxError:
        return text


@cache
def _lineage(omni: str) -> Lineage:
    """What the methods of a checkout were copied from."""
    return infer(open_source(omni), RELEASES)


def _target(task: Task) -> SourceTree:
    return _open(f"pypi:vllm-ascend=={task.setup.ascend}")


def target_keys(task: Task) -> Counter[str]:
    return keys(_target(task).read(omni_side(_human(task)).upstream.path))
