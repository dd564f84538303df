"""Merge all copied methods of the runner files, and derive their imports."""

from __future__ import annotations

import builtins
import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from npu_upgrade.code.module import Module, Unit, replace_units
from npu_upgrade.code.names import imports_of
from npu_upgrade.code.statements import Statement, render, split_statements
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Runner, Upstream, read_runner
from npu_upgrade.lineage.history import upstream_unit
from npu_upgrade.lineage.import_sources import UpstreamFile
from npu_upgrade.lineage.imports import ImportPlan, derive_imports
from npu_upgrade.lineage.inference import MethodLineage
from npu_upgrade.lineage.marker_places import omni_code
from npu_upgrade.lineage.marking import add_markers
from npu_upgrade.lineage.project import package_of
from npu_upgrade.lineage.records import Bases
from npu_upgrade.merge.answers import Answers, apply_answers
from npu_upgrade.merge.callees import with_callees
from npu_upgrade.merge.markers import close_in_place
from npu_upgrade.merge.nowhere import known_in
from npu_upgrade.program.words import words_of
from npu_upgrade.sources.tree import SourceTree
from npu_upgrade.threeway.method import Context, merge_method
from npu_upgrade.threeway.pieces import Flag, Labels, MergedMethod, resolved


@dataclass(frozen=True)
class MethodOutcome:
    """What became of one copied method.

    ``outcome`` is ``unchanged``, ``auto``, ``auto with flags``, ``conflict`` or ``gone``
    (upstream has no such method any more: ours stays). ``old``: of an ``unchanged`` one, that upstream has
    not changed it in this upgrade, however old the copy is.
    """

    entry: MethodLineage
    outcome: str
    base: str
    merged: MergedMethod | None = None
    upstream_text: str | None = None
    base_text: str = ""
    old: bool = False


@dataclass
class MergedRunners:
    """The merged files by path, before and after, with the imports and each method's outcome.

    ``method_seconds`` is the time that merging the methods took, without imports and reading
    the trees.
    """

    ours: dict[str, str]
    files: dict[str, str]
    methods: list[MethodOutcome] = field(default_factory=list)
    imports: dict[str, ImportPlan] = field(default_factory=dict)
    method_seconds: float = 0.0
    runners: Sequence[Runner] = ()

    @property
    def conflicts(self) -> int:
        return sum(len(m.merged.conflicts) for m in self.methods if m.merged)


def read_target(target: SourceTree, upstream: Upstream) -> Module:
    """The upstream runner file at the target; :class:`BadInput` when the target does not have it."""
    if not target.exists(upstream.path):
        raise BadInput(
            f"{target.spec} has no {upstream.path}, where the NPU runners take {upstream.class_name} from",
            expected="a version of vllm-ascend that has that file",
            try_="check the spec; when upstream moved the file, move the import in the runners first",
        )
    module = read_runner(target, upstream.path)
    if module.class_def(upstream.class_name) is None:
        raise BadInput(
            f"{upstream.path} of {target.spec} has no class {upstream.class_name}",
            expected="the class that the NPU runners derive from",
            try_="check the spec; a renamed class needs its import changed in the runners first",
        )
    return module


def merge_runners(
    omni: SourceTree,
    target: SourceTree,
    upstream: Upstream,
    bases: Bases,
    *,
    labels: Labels,
    base: SourceTree | None = None,
    vllm: SourceTree | None = None,
    answers: Answers | None = None,
    mark: bool = False,
) -> MergedRunners:
    """Merge every copied method of ``omni`` towards ``target`` on ``vllm``; nothing is written.

    Without the tree of the joint ``base`` it is not known which names are gone.
    """
    theirs = read_target(target, upstream)
    runners = bases.lineage.runners
    ours = {runner.path: omni.read(runner.path) for runner in runners}
    gpu = {r.gpu_path: omni.read(r.gpu_path) for r in runners if r.gpu_path}
    exists = made_somewhere(base, [tree for tree in (target, omni, vllm) if tree])
    known = known_in(omni, target, vllm)
    result = MergedRunners(ours, {}, runners=runners)
    for runner in runners:
        say(f"merging {runner.path}")
        module = read_runner(omni, runner.path)
        context = Context(exists, own_names(module, runner.path), vain=known.why_vain if known else None)
        texts: dict[str, str] = {}
        begun = time.monotonic()
        for name, unit in module.units.items():
            entry = bases.lineage.method(runner.path, unit.qualname)
            if entry is None or not entry.copied:
                continue
            now = upstream_unit(theirs.units, upstream.class_name, entry.upstream)
            outcome = merge_unit(entry, unit, now.source if now else None, bases, context, answers)
            if outcome.merged:
                flags = with_callees(outcome.merged.flags, theirs.units, base, upstream)
                outcome = replace(outcome, merged=replace(outcome.merged, flags=flags))
            result.methods.append(outcome)
            if outcome.merged and (mark or outcome.outcome != "unchanged"):
                texts[name] = merged_text(outcome, labels, mark)
        result.method_seconds += time.monotonic() - begun
        result.files[runner.path] = replace_units(module, texts)
    _derive(result, UpstreamFile(upstream.path, theirs.source), gpu, target, omni)
    return result


def merge_unit(
    entry: MethodLineage,
    unit: Unit,
    theirs: str | None,
    bases: Bases,
    context: Context,
    answers: Answers | None = None,
) -> MethodOutcome:
    """The outcome for one copied unit; ``theirs`` is upstream's text at the target, None where it is gone."""
    ours = split_statements(unit.source)
    base = bases.statements(entry, ours)
    label = bases.version(entry).label
    base_text = render(base) if base else ""
    if base is None or theirs is None:
        return MethodOutcome(entry, "gone", label, base_text=base_text)
    base = at_depth(base, ours)
    theirs_now = at_depth(split_statements(theirs), ours)
    merged = merge_method(base, ours, theirs_now, context)
    merged = replace(merged, pieces=close_in_place(merged.pieces, ours))
    if answers is not None and merged.conflicts:
        merged = apply_answers(merged, answers)
    if not bases.is_sure(entry):
        doubts = _doubts(merged, (base, ours, theirs_now), bases, entry, context)
        merged = replace(merged, flags=(*merged.flags, *doubts))
    return MethodOutcome(entry, _outcome(merged, unit.source), label, merged, theirs, base_text)


def at_depth(statements: list[Statement], ours: list[Statement]) -> list[Statement]:
    """Statements of upstream's at the depth of ours: a method may be a copy of a function."""
    by = ours[0].indent - statements[0].indent if ours and statements else 0
    return [statement.shifted(by) for statement in statements]


def _doubts(
    merged: MergedMethod,
    sides: tuple[list[Statement], list[Statement], list[Statement]],
    bases: Bases,
    entry: MethodLineage,
    context: Context,
) -> Iterator[Flag]:
    """A flag where another base would have given another result, or the base is the target's own text."""
    base, ours, theirs = sides
    label = bases.version(entry).label
    other = bases.statements(entry, ours, entry.rival) if entry.rival else None
    other = at_depth(other, ours) if other else None
    if entry.rival and other:
        both = [
            resolved(one.pieces, "theirs") for one in (merged, merge_method(other, ours, theirs, context))
        ]
        here, there = (_only_in(one, two) for one, two in (both, both[::-1]))
        if here or there:
            reason = (
                f"its base is not sure: {label} was taken, as for what was copied with it; alone its text is "
                f"nearer to {entry.rival.label}, and `theirs` is what would stand here from that"
            )
            yield Flag("base", reason, "", here, there)
    elif [s.key for s in base] == [s.key for s in theirs] != [s.key for s in ours]:
        reason = f"its base is not sure, and {label} has the target's text: changes may be missing"
        yield Flag("base", reason, render(base), render(ours), render(theirs))


def _only_in(one: Sequence[Statement], other: Sequence[Statement]) -> str:
    """The text of the statements that another version of the method does not have."""
    known = {statement.key for statement in other}
    return render([statement for statement in one if statement.key not in known])


def _outcome(merged: MergedMethod, ours: str) -> str:
    if merged.conflicts:
        return "conflict"
    if merged.text().split() == ours.split() and all(flag.kind != "base" for flag in merged.flags):
        return "unchanged"
    return "auto with flags" if merged.flags else "auto"


def merged_text(outcome: MethodOutcome, labels: Labels, mark: bool = False) -> str:
    """The text of a merged unit, conflicts with their markers."""
    merged = outcome.merged
    assert merged is not None
    if mark and not merged.conflicts:
        whole = resolved(merged.pieces, "ours")
        pieces = add_markers(whole, omni_code(whole, split_statements(outcome.upstream_text or "")))
        merged = MergedMethod(tuple(pieces), merged.flags, merged.automatic)
    return merged.text(labels)


def _derive(
    result: MergedRunners,
    upstream: UpstreamFile,
    gpu: Mapping[str, str],
    target: SourceTree,
    omni: SourceTree,
) -> None:
    result.imports = derive_imports(result.files, result.ours, upstream, gpu, target, omni)
    for path, plan in result.imports.items():
        result.files[path] = plan.source


def made_somewhere(base: SourceTree | None, trees: Sequence[SourceTree]) -> Callable[[str], bool]:
    """Whether a name that ``base`` makes is made anywhere in some trees; what it does not make is unknown."""

    def texts_with(name: str, tree: SourceTree) -> Iterator[str]:
        within = f"{package_of(tree)}/"
        return (tree.read(path) for path in words_of(tree).of(name) if path.startswith(within))

    @functools.cache
    def exists(name: str) -> bool:
        made = re.compile(
            rf"\b(?:def|class|import\b.*)\s{name}\b|\b{name}\s*(?::[^=(]+)?=(?!=)|^\s+{name}\s*(?::|,$)"
            rf"|[\"']{name}[\"']\s*,"
        )

        def makes(tree: SourceTree) -> bool:
            lines = (line for text in texts_with(name, tree) for line in _lines_with(name, text))
            return any(map(made.search, lines))

        return hasattr(builtins, name) or any(map(makes, trees)) or base is None or not makes(base)

    return exists


def _lines_with(name: str, text: str) -> Iterator[str]:
    at = text.find(name)
    while at >= 0:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[text.rfind("\n", 0, at) + 1 : end]
        at = text.find(name, end)


def own_names(module: Module, path: str) -> frozenset[str]:
    """Names that stand for the downstream's own things in a file of it."""
    package = path.partition("/")[0]
    imported = imports_of(module.source).items()
    return frozenset(name for name, item in imported if item.module.partition(".")[0] == package)
