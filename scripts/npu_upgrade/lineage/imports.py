"""Derives the imports of merged runner files from their bodies.

A merge brings new bodies under old imports. Names that the bodies now lack are imported
from where the target's own files have them, imports that lost their last use go, and
imports of what the target no longer has are pointed to where it is now. Nothing is
invented: a name without a certain source is reported as unresolved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.definitions import absolute, module_of
from npu_upgrade.code.import_edit import Edit, edit_imports, import_lines
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import Import, exported, names_of, undefined_names
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.import_sources import Sources, UpstreamFile
from npu_upgrade.lineage.project import package_of
from npu_upgrade.program.places import importers
from npu_upgrade.program.program import Program
from npu_upgrade.sources.tree import SourceTree

_ROUNDS = 6


@dataclass
class ImportPlan:
    """The imports of one file: its new text, and what was done to get there.

    ``unresolved`` holds names without a certain source, and stale imports without a new
    one; ``reasons`` says for every name where its import came from, or what was tried.
    """

    source: str
    added: list[Import] = field(default_factory=list)
    dropped: list[Import] = field(default_factory=list)
    moved: list[tuple[Import, Import]] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


def derive_imports(
    merged: Mapping[str, str],
    ours: Mapping[str, str],
    upstream: UpstreamFile,
    gpu: Mapping[str, str],
    target: SourceTree | None,
    omni: SourceTree | None,
    program: Program | None = None,
) -> dict[str, ImportPlan]:
    """The merged files (path to text) with the imports that their bodies need.

    ``ours`` are the files before the merge, ``gpu`` the GPU runners by path; ``target`` and
    ``omni`` are the trees that imports of vllm_ascend and vllm_omni are checked against,
    None leaves those unchecked; ``program`` is of both, where it was read before. Files may
    hold diff3 conflicts: then both answers count.
    Raises :class:`BadInput` when a file is not Python with its conflicts decided for one side.
    """
    for path, text in [*ours.items(), *merged.items()]:
        _check(path, text)
    sources = Sources(merged, ours, upstream, gpu, target, omni, program)
    return {path: _plan(path, text, ours.get(path, text), sources) for path, text in merged.items()}


def without_lost(path: str, before: str, after: str, omni: Callable[[], SourceTree]) -> str:
    """A file after an edit, less the imports that lost their last use by it and that no other file takes."""
    was, now = _uses(before), _uses(after)
    lines = (line for line in import_lines(after) if not line.kept_by_comment)
    lost = [item for line in lines for item in line.imports if _lost(item, was, now)]
    if not lost:
        return after
    tree = omni()
    program = Program({package_of(tree): tree})
    drop = [item for item in lost if not _re_exported(item, path, program)]
    return edit_imports(after, Edit(drop=drop, package=path.partition("/")[0]))


@dataclass(frozen=True)
class _Uses:
    """Global names over all answers of a file.

    ``parted`` are those that one answer to a conflict lacks and another one sets in a function.
    """

    read: frozenset[str]
    run_time: frozenset[str]
    undefined: frozenset[str]
    defined: frozenset[str]
    parted: frozenset[str]


def _uses(text: str) -> _Uses:
    texts = {answer.text for answer in answers(text)}
    names = [names_of(text) for text in texts]
    undefined = frozenset().union(*map(undefined_names, texts))
    local = frozenset().union(*(part.local for part in names)) if len(texts) > 1 else frozenset()
    return _Uses(
        read=frozenset().union(*(part.read for part in names), *(exported(text) for text in texts)),
        run_time=frozenset().union(*(part.run_time for part in names)),
        undefined=undefined,
        defined=frozenset.intersection(*(frozenset(parse_module(t).top_level_names()) for t in texts)),
        parted=undefined & local,
    )


def _plan(path: str, text: str, ours: str, sources: Sources) -> ImportPlan:
    plan = ImportPlan(text)
    before = _uses(ours)
    for _ in range(_ROUNDS):  # an empty TYPE_CHECKING block goes, then the import of TYPE_CHECKING
        uses = _uses(plan.source)
        drop = _dropped(path, plan.source, before, uses, sources)
        gone = set(drop)
        left = [line for line in import_lines(plan.source) if not gone.issuperset(line.imports)]
        kept = [item for line in left for item in line.imports if item not in gone]
        move = [pair for item in kept if (pair := _moved(path, item, before, uses, sources, plan))]
        add = _added(path, before, uses, sources, plan)
        if not (drop or move or add):
            break
        edit = Edit(add, drop, move, path.partition("/")[0])
        plan.source = edit_imports(plan.source, edit)
        plan.added += add
        plan.dropped += drop
        plan.moved += move
    return plan


def _dropped(path: str, text: str, before: _Uses, uses: _Uses, sources: Sources) -> list[Import]:
    return [
        item
        for line in import_lines(text)
        if not line.kept_by_comment
        for item in line.imports
        if _lost(item, before, uses) and not _re_exported(item, path, sources.program)
    ]


def _lost(item: Import, before: _Uses, uses: _Uses) -> bool:
    """Whether an import had a use before the merge and has none now, or is hidden by a definition."""
    if item.module == "__future__" or item.name == "*":
        return False
    hidden = item.bound in uses.defined and item.bound not in before.defined and not item.typing_only
    return hidden or (item.bound in before.read and item.bound not in uses.read)


def _re_exported(item: Import, path: str, program: Program) -> bool:
    found = importers(program, Import(module_of(path), item.bound))
    return any(importer != path for importer in found)


def _moved(
    path: str, item: Import, before: _Uses, uses: _Uses, sources: Sources, plan: ImportPlan
) -> tuple[Import, Import] | None:
    if not sources.works(absolute(item, path)):
        offer = sources.replacement(item, path)
        if offer is None:
            missing = sources.missing(item.name or item.bound, path)
            _unresolved(plan, item.bound, f"{item.statement()} is gone; {missing}")
            return None
        plan.reasons[item.bound] = offer[1]
        return item, offer[0]
    late = item.bound in uses.run_time and item.bound not in before.run_time
    if item.typing_only and late and item.bound not in uses.defined:
        plan.reasons[item.bound] = "imported for type checkers, now used at run time"
        return item, replace(item, typing_only=False)
    return None


def _added(path: str, before: _Uses, uses: _Uses, sources: Sources, plan: ImportPlan) -> list[Import]:
    """What to import. Nobody is asked about a name that was lacking before, or that a conflict decides on."""
    found = []
    for name in sorted(uses.undefined):
        offer = sources.find(name, path)
        if offer is None:
            if name not in before.undefined | uses.parted:
                _unresolved(plan, name, sources.missing(name, path))
            continue
        item, plan.reasons[name] = offer
        found.append(replace(item, typing_only=item.typing_only and name not in uses.run_time))
    return found


def _unresolved(plan: ImportPlan, name: str, reason: str) -> None:
    if name not in plan.unresolved:
        plan.unresolved.append(name)
        plan.reasons[name] = reason


def _check(path: str, text: str) -> None:
    for side, answer in zip(("ours", "theirs"), answers(text, path), strict=True):
        try:
            parse_module(answer.text)
        except SyntaxError as error:
            row = answer.rows[min(error.lineno or 1, len(answer.rows)) - 1] + 1 if answer.rows else 1
            raise BadInput(
                f"{path} is not Python with its conflicts decided for {side}: line {row}: {error.msg}",
                expected="a merged file where both answers to every conflict are Python",
                try_="repair that line, or merge the file again",
            ) from error
