"""Merge every copy that a downstream has of its upstreams, in whichever file it is.

A unit that upstream moved or renamed is followed by its text.
"""

from __future__ import annotations

import ast
import re
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from packaging.version import Version

from npu_upgrade.code.module import Module, Unit, parse_module, replace_units
from npu_upgrade.code.signatures import Function, every_parameter, misfit
from npu_upgrade.code.statements import split_statements
from npu_upgrade.code.walk import dotted
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.alike import Alike, Candidate
from npu_upgrade.lineage.downstream import read_runner
from npu_upgrade.lineage.history import keys_of
from npu_upgrade.lineage.import_sources import UpstreamFile
from npu_upgrade.lineage.imports import derive_imports
from npu_upgrade.lineage.inference import is_copy, match
from npu_upgrade.lineage.origins import Origins, taken_together
from npu_upgrade.lineage.project import package_of
from npu_upgrade.lineage.records import Bases, MethodLineage
from npu_upgrade.merge.answers import Answers
from npu_upgrade.merge.runners import (
    MergedRunners,
    MethodOutcome,
    made_somewhere,
    merge_unit,
    merged_text,
    own_names,
)
from npu_upgrade.program.constructors import constructor
from npu_upgrade.program.program import ClassSymbol, File, FunctionSymbol, Program
from npu_upgrade.program.version_guards import evaluate
from npu_upgrade.sources.tree import SourceTree
from npu_upgrade.threeway.method import Context
from npu_upgrade.threeway.pieces import Flag, Labels, MergedMethod


def merge_copies(
    origins: Origins,
    target: SourceTree,
    *,
    labels: Labels,
    now: SourceTree | None = None,
    answers: Answers | None = None,
) -> MergedRunners:
    """Merge the copies of the target's project towards ``target``; nothing is written.

    ``now`` is the upstream that the downstream is on, None where that is not known: a copy of what has not
    changed since stays as it is, however old. ``answers`` are remembered ones.
    """
    side, package = origins.side, package_of(target)
    groups = [group for group in taken_together(origins.units) if group[0].upstream.startswith(f"{package}/")]
    exists = made_somewhere(side.upstreams[package], [target, side.tree])
    upstream, before = _Target(target, package), _Target(now, package) if now else None
    result = MergedRunners({}, {})
    entries: list[tuple[MethodLineage, Bases]] = []
    for group in groups:
        lineage = origins.lineage(group)
        if lineage is None:
            continue
        newest = next((one for one in lineage.history.versions if one.version == target.version), None)
        bases = Bases(lineage, None, newest)
        entries += [(entry, bases) for entry in lineage.methods if entry.best]
    upstream.follow(entries)
    by_path: dict[str, list[tuple[MethodLineage, Bases]]] = {}
    for entry, bases in entries:
        by_path.setdefault(entry.path, []).append((entry, bases))
    program = Program({package: target, side.project.package: side.tree})
    copied = {
        (entry.path, entry.name): upstream.at(f"{bases.lineage.history.upstream.path}:{entry.upstream}")
        for entry, bases in entries
    }
    never = _never(target)
    for path, found in by_path.items():
        say(f"merging {path}")
        module = read_runner(side.tree, path)
        misfit_of = _misfit(program.file(path), copied)
        context = Context(exists, own_names(module, path), misfit_of, never)
        texts: dict[str, str] = {}
        begun = time.monotonic()
        for entry, bases in found:
            if entry.name not in module.units:
                say(f"note: {path}: {entry.name} stands below a condition and stays as it is")
                continue
            outcome = _merged(entry, module.units[entry.name], upstream, before, bases, context, answers)
            result.methods.append(outcome)
            if outcome.merged and outcome.outcome != "unchanged":
                texts[entry.name] = merged_text(outcome, labels)
        result.method_seconds += time.monotonic() - begun
        if texts:
            result.ours[path] = module.source
            result.files[path] = replace_units(module, texts)
            _derive(result, path, upstream.main(found), target, side.tree, program)
    return result


def _misfit(
    file: File | None, copied: Mapping[tuple[str, str], Candidate | None]
) -> Callable[[ast.Call], str] | None:
    """Why a call in ``file`` does not fit the function or class of the same project that it calls.

    What is a copy itself may take by its own merge what upstream's takes; that fits, and all that is unknown.
    """
    if file is None:
        return None

    def why(call: ast.Call) -> str:
        # What is launched is a kernel, which takes the options of its launch too.
        launched = isinstance(call.func, ast.Subscript)
        func = call.func.value if isinstance(call.func, ast.Subscript) else call.func
        symbol = file.resolve(func) if dotted(func) else None
        if not isinstance(symbol, (FunctionSymbol, ClassSymbol)) or symbol.file.project != file.project:
            return ""
        made = isinstance(symbol, ClassSymbol)
        node = constructor(symbol) if isinstance(symbol, ClassSymbol) else symbol.node
        if node is None or (node.decorator_list and not launched):
            return ""
        nodes: list[ast.stmt] = [node]
        place = (symbol.file.path, f"{symbol.node.name}.__init__" if made else symbol.node.name)
        if place in copied:
            now = copied[place]
            nodes += ast.parse(textwrap.dedent(now.unit.source)).body if now else []
        told = [_told(call, one, launched, made) for one in nodes if isinstance(one, Function)]
        return f"{symbol.node.name} {told[0]}" if all(told) else ""

    return why


def _told(call: ast.Call, node: Function, launched: bool, bound: bool) -> str:
    if launched:
        takes = {arg.arg for arg in every_parameter(node.args)}
        call = ast.Call(call.func, call.args, [given for given in call.keywords if given.arg in takes])
    return misfit(call, node, bound=bound)


def _never(target: SourceTree) -> Callable[[ast.expr], bool] | None:
    """Whether a condition on upstream's version does not hold with ``target``."""
    if package_of(target) != "vllm" or not target.version:
        return None
    version = Version(target.version)
    return lambda test: evaluate(test, version) is False


def _merged(
    entry: MethodLineage,
    unit: Unit,
    upstream: _Target,
    before: _Target | None,
    bases: Bases,
    context: Context,
    answers: Answers | None,
) -> MethodOutcome:
    place = f"{bases.lineage.history.upstream.path}:{entry.upstream}"
    now = upstream.at(place)
    if before and before.same(place, now):
        version, kept = bases.version(entry), MergedMethod(tuple(split_statements(unit.source)))
        text = bases.lineage.history.unit(version, entry.upstream) or ""
        then = now.unit.source if now else None
        return MethodOutcome(entry, "unchanged", version.label, kept, then, text, True)
    theirs = _under(entry.upstream, now.unit).source if now else None
    outcome = merge_unit(entry, unit, theirs, bases, context, answers)
    if now and outcome.merged and f"{now.path}:{now.unit.qualname}" != place:
        reason = f"upstream has {place} as {now.path}:{now.unit.qualname} now"
        flag = Flag("followed", reason, "", "", "")
        outcome = replace(outcome, merged=replace(outcome.merged, flags=(*outcome.merged.flags, flag)))
    return outcome


def _under(name: str, unit: Unit) -> Unit:
    """A unit of upstream's under the name that it had: a new name is no change of what it does."""
    old = name.rpartition(".")[2]
    head = re.compile(rf"^([ \t]*(?:async[ \t]+def|def|class)[ \t]+){unit.name}\b", re.MULTILINE)
    return unit if unit.name == old else replace(unit, source=head.sub(rf"\g<1>{old}", unit.source, count=1))


def _derive(
    result: MergedRunners,
    path: str,
    upstream: UpstreamFile,
    target: SourceTree,
    tree: SourceTree,
    program: Program,
) -> None:
    texts, ours = {path: result.files[path]}, {path: result.ours[path]}
    plan = derive_imports(texts, ours, upstream, {}, target, tree, program)[path]
    result.imports[path] = plan
    result.files[path] = plan.source


class _Target:
    """The units of upstream's at the target, those that moved by where they were."""

    def __init__(self, tree: SourceTree, package: str) -> None:
        self.tree, self.package = tree, package
        self._moved: dict[str, Candidate] = {}

    def at(self, place: str) -> Candidate | None:
        """What was at ``path:name`` before; None where it is gone."""
        path, _, name = place.partition(":")
        unit = self._units(path).get(name)
        return Candidate(path, unit) if unit else self._moved.get(place)

    def same(self, place: str, then: Candidate | None) -> bool:
        """Whether what ``then`` has was there already, here or at ``place``; of what is gone, that it was."""
        if then is None:
            return self.at(place) is None
        found = filter(None, map(self.at, (place, f"{then.path}:{then.unit.qualname}")))
        keys = keys_of(then.unit.source)
        return any(keys_of(_under(then.unit.qualname, one.unit).source) == keys for one in found)

    def main(self, entries: Sequence[tuple[MethodLineage, Bases]]) -> UpstreamFile:
        """The file that most of some units are copies of."""
        paths = [bases.lineage.history.upstream.path for _, bases in entries]
        path = max(paths, key=paths.count)
        return UpstreamFile(path, self.tree.read(path) if self.tree.exists(path) else "")

    def follow(self, entries: Sequence[tuple[MethodLineage, Bases]]) -> None:
        """Find by their texts the units that are no longer where they were."""
        gone: dict[str, Unit] = {}
        for entry, bases in entries:
            path = bases.lineage.history.upstream.path
            if entry.upstream not in self._units(path):
                text = bases.lineage.history.unit(bases.version(entry), entry.upstream) or ""
                gone[f"{path}:{entry.upstream}"] = Unit(entry.upstream, 0, text.count("\n") + 1, text)
        if not gone:
            return
        say(f"looking where upstream has {len(gone)} units that are gone from their files")
        alike = Alike({self.package: self.tree}, gone.values(), self._units)
        for place, unit in gone.items():
            keys = keys_of(unit.source)
            found = [(match(keys, keys_of(one.unit.source)), one) for one in alike.candidates(unit)]
            best = max(found, key=lambda pair: pair[0].score, default=None)
            if best and is_copy(best[0], len(keys)):
                self._moved[place] = best[1]

    def _units(self, path: str) -> Mapping[str, Unit]:
        return _read(self.tree, path).units if self.tree.exists(path) else {}


def _read(tree: SourceTree, path: str) -> Module:
    try:
        return parse_module(tree.read(path))
    except (SyntaxError, BadInput):  # what cannot be read has no units
        return parse_module("")
