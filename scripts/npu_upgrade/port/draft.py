"""The GPU side's whole change of a method in the NPU side's, with conflicts where the two do not combine."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.flow import may_be_unbound
from npu_upgrade.code.import_edit import Edit, edit_imports
from npu_upgrade.code.module import parse_module, replace_units
from npu_upgrade.code.sequences import Change
from npu_upgrade.code.statements import Statement, nodes_of, split_statements
from npu_upgrade.code.uses import defines, free_names, reads
from npu_upgrade.code.walk import dotted
from npu_upgrade.ground.tables import cut
from npu_upgrade.lineage.dialect import is_device_bound
from npu_upgrade.lineage.downstream import Runner
from npu_upgrade.lineage.imports import derive_imports
from npu_upgrade.port.driven import Upstream
from npu_upgrade.port.hunks import Hunk
from npu_upgrade.port.marked import comments_behind, marked_pieces
from npu_upgrade.port.narrow import less_made_twice, narrowed, with_definitions, with_same_steps
from npu_upgrade.port.needs import Ranked
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.port.place import laid_out
from npu_upgrade.port.sides import keys_of
from npu_upgrade.port.state_fields import with_state_fields, with_unpackings
from npu_upgrade.port.unit_diff import UnitDiff
from npu_upgrade.threeway.method import Context, merge_method
from npu_upgrade.threeway.pieces import Conflict, Piece, render_pieces, resolved, syntax_error

GPU = "GPU side"
_SHOWN = 100  # characters of a statement
_OWN = 40  # statements: what the NPU side has so much of in its own way stays, and is left to a person
_REWRITTEN = "the GPU side wrote this anew, and the NPU side has its own, which stays"
_LACKS = "left out with what belongs to it, for the NPU class has no such method (name it to take it)"
_MADE_TWICE = "left out, for the NPU side makes this call itself and nothing reads what it would give here"
_CALL = re.compile(r"\bself\.(\w+)\(")
_MOST = 0.5  # of a method's statements in one conflict: beyond that, nothing was combined


@dataclass(frozen=True)
class Draft:
    """``unit`` of the runner file at ``path`` with the hunks ``ids`` in it, and so many ``conflicts``.

    ``decided`` is what the merge decided by itself, and why: what the GPU side changed may have no place.
    """

    path: str
    unit: str
    group: str
    ids: tuple[str, ...]
    text: str
    conflicts: int
    decided: tuple[str, ...] = ()


def drafts(
    ranked: Sequence[Ranked],
    npu: NpuSide,
    upstream: Upstream,
    *,
    fitting: bool = False,
    complete: bool = False,
) -> list[Draft]:
    """The methods of which hunks do not fit, or not by themselves, as a whole; ``fitting``: the others too.

    ``complete``: of the new methods all are named that are to come, so that calls of another one that the NPU
    class lacks stay out, with what belongs to them.

    What it holds already is the GPU side's too. Left out are what is written for CUDA, where the rest does
    without it, what vLLM's method has and vllm-ascend's own does without, what the GPU side wrote anew where
    the NPU side has much of its own, and a method of which most would be in one conflict.
    """
    units: dict[tuple[str, str, int], list[Ranked]] = {}
    for entry in ranked:
        hunk = entry.hunk
        if hunk.kind == "change":
            units.setdefault((hunk.runner.path, hunk.unit, id(hunk.diff)), []).append(entry)
    found: dict[tuple[str, str], Draft] = {}
    for entries in units.values():
        ours = [entry for entry in entries if not _is_for_cuda(entry)]
        of_cuda = [entry.hunk for entry in entries if _is_for_cuda(entry)]
        asked = ours and (fitting or any(entry.tier > 1 for entry in ours))
        hunks = [entry.hunk for entry in ours]
        missing = _calling_what_lacks(hunks, npu) if complete and hunks else {}
        if asked and (one := _draft(hunks, missing, of_cuda, npu, upstream)):
            before = found.get((one.path, one.unit))
            if not before or len(before.ids) < len(one.ids):  # of the upgrade that changed most of it
                found[one.path, one.unit] = one
    return list(found.values())


def put(chosen: Collection[Draft], npu: NpuSide) -> dict[str, str]:
    """The runner files with drafts in them, by path, and the imports that one answer to all conflicts needs.

    What an answer then does not use goes with it. A runner file where a state is taken apart that gains a
    field comes too.
    """
    files: dict[str, str] = {}
    for runner in npu.runners:
        if mine := {one.unit: one.text for one in chosen if one.path == runner.path}:
            files[runner.path] = replace_units(npu.modules[runner.kind], mine)
    if not files:
        return files
    files = _with_state_fields(npu, files)
    texts = dict(npu.texts) | files
    plans = derive_imports(texts, npu.texts, npu.upstream_file, npu.gpu_texts, npu.ascend, npu.tree)
    for path, text in files.items():
        files[path] = edit_imports(text, Edit(plans[path].added, package=path.partition("/")[0]))
    return files


def _with_state_fields(npu: NpuSide, files: Mapping[str, str]) -> dict[str, str]:
    """The files with the fields that their calls give, whatever the answers to conflicts are.

    With them are the files where such a state is taken apart.
    """
    found = dict(files)
    answered = {path: answers(text, path) for path, text in files.items()}
    sides = [npu.texts | {path: both[side].text for path, both in answered.items()} for side in (0, 1)]
    grown = [_grown(npu, texts, files) for texts in sides]
    for path in (one.path for one in npu.runners):
        both = zip(sides, grown, strict=True)
        ours, theirs = (_changed_units(texts[path], more[path]) for texts, more in both)
        for old, new in ours & theirs:
            found[path] = found.get(path, npu.texts[path]).replace(old, new, 1)
    return found


def _grown(npu: NpuSide, texts: Mapping[str, str], paths: Collection[str]) -> dict[str, str]:
    """The texts with the fields that the files at ``paths`` give, and names for them where it is unpacked."""
    gpu = {one.path: npu.gpu_texts[one.gpu_path] for one in npu.runners if one.path in paths}
    fields = {path: with_state_fields(path, texts, text) for path, text in gpu.items()}
    return with_unpackings(texts, {**texts, **fields})


def _changed_units(before: str, after: str) -> set[tuple[str, str]]:
    """The texts of the units that differ, before and after."""
    old, new = (parse_module(text).units for text in (before, after))
    return {(old[name].source, new[name].source) for name in old if old[name].source != new[name].source}


def _is_for_cuda(entry: Ranked) -> bool:
    told = any("torch.cuda" in reason for reason in entry.reasons)
    return told or any(map(is_device_bound, entry.hunk.added))


def _sides(
    diff: UnitDiff, hunks: Sequence[Hunk], of_cuda: Sequence[Hunk]
) -> tuple[list[Statement], list[Statement]]:
    """The GPU side's text before and after what the NPU side lacks of it.

    What it holds already, and what only follows vLLM, is in both. What is written for CUDA is in neither, but
    for what the rest needs a name of.
    """
    lacking = {piece for hunk in hunks for piece in hunk.pieces}
    apart = {piece for hunk in of_cuda for piece in hunk.pieces} - lacking
    begun = {piece.b0 for piece in lacking if piece.b0 < piece.b1}
    # what only opens a block, of which all is lacking, is of no use without it
    lacking |= {piece for piece in diff.pieces if piece.b1 in begun and diff.new[piece.b1 - 1].is_header}
    before = [piece for piece in diff.pieces if piece not in lacking | apart]
    after = [piece for piece in diff.pieces if piece not in apart]
    if not (diff.parses(before) and diff.parses(after)):  # the parts of one chain of conditions
        before, after = [], sorted(lacking)
    lost = _lost(diff.compose(after), diff.new)
    for hunk in of_cuda:
        more = sorted({*after, *hunk.pieces})
        if lost and (less := _lost(diff.compose(more), diff.new)) < lost:
            after, lost = more, less
    return diff.compose(before), diff.compose(after if not lost else diff.pieces)


def _lost(part: Sequence[Statement], whole: Sequence[Statement]) -> frozenset[str]:
    """The names that have a value in the whole text, and not always in a part of it."""
    return may_be_unbound(part) - may_be_unbound(whole) | (free_names(part) - free_names(whole))


def _without(
    base: Sequence[Statement], theirs: Sequence[Statement], keys: Collection[str]
) -> list[Statement]:
    """``theirs`` without what it has beyond ``base`` of these statements, whole blocks at a time.

    A block stays where the rest is no Python without it, or reads a name of it.
    """
    new = Counter(one.key for one in theirs) - Counter(one.key for one in base)
    foreign = [one.key in keys and one.key in new for one in theirs]
    gone: set[int] = set()
    place = 0
    while place < len(theirs):
        end = place + 1
        while end < len(theirs) and theirs[place].is_header and theirs[end].indent > theirs[place].indent:
            end += 1
        block = {*range(place, end)}
        whole = all(foreign[place:end]) and _stands(theirs, gone | block)
        gone |= block if whole else set()
        place = end if whole else place + 1
    return [one for number, one in enumerate(theirs) if number not in gone]


def _stands(theirs: Sequence[Statement], gone: Collection[int]) -> bool:
    """Whether a method is Python, and its names have their values, without some statements."""
    left = [one for number, one in enumerate(theirs) if number not in gone]
    return syntax_error(left) is None and not _lost(left, theirs)


def _draft(
    hunks: Sequence[Hunk],
    missing: Mapping[str, str],
    of_cuda: Sequence[Hunk],
    npu: NpuSide,
    upstream: Upstream,
) -> Draft | None:
    """One method with as many of the hunks as it takes; see :func:`drafts`."""
    first, diff = hunks[0], hunks[0].diff
    assert diff is not None, "a change has the difference it belongs to"
    module = npu.modules[first.runner.kind]
    ours = split_statements(module.units[first.unit].source)
    known = reads(one.key for one in ours) | defines(one.key for one in ours)
    of_missing = _belonging([hunk for hunk in hunks if hunk.id in missing], hunks, known)
    left = [hunk for hunk in hunks if hunk not in of_missing]
    source = npu.copied_from(first.unit)
    copied = split_statements(source) if source else []
    decided = [f"{_LACKS}: {', '.join(sorted(set(missing.values())))}"] if missing else []
    while left:
        base, theirs = _sides(diff, left, of_cuda)
        steps = _new_steps(diff, [piece for hunk in left for piece in hunk.pieces], first.runner, npu)
        base = _less_kept(_less_replaced(base, ours, steps), diff, copied)
        if first.unit.rpartition(".")[2] in npu.upstream_methods:
            theirs = _without(base, theirs, {*upstream.after} - npu.upstream_keys)
        merged = merge_method(base, ours, theirs, Context(takes_new=True))
        pieces = with_same_steps(narrowed(merged.pieces), theirs)
        pieces, twice = less_made_twice(with_definitions(pieces, ours, theirs), ours)
        conflicts = [piece for piece in pieces if isinstance(piece, Conflict)]
        anew = [one for one in conflicts if len(one.ours) > _OWN]
        beyond = _of_rewritten(left, anew, pieces, ours, known) if anew else []
        if not beyond:
            break
        starts = (one.theirs[0].key if one.theirs else "(nothing)" for one in anew)
        decided += [f"{_REWRITTEN}: {cut(start, _SHOWN)}" for start in starts]
        left = [hunk for hunk in left if hunk not in beyond]
    if not left or any(len(one.ours) > _MOST * (len(ours) - 1) for one in conflicts):  # less its head
        return None
    if not conflicts and keys_of(resolved(pieces, "ours")) == keys_of(ours):
        return None
    pieces = _laid_out(ours, pieces)
    if copied:
        pieces = marked_pieces(pieces, ours, copied, comments_behind(module, module.units[first.unit]))
    text = render_pieces(pieces, ("NPU side", f"{GPU} before", GPU))
    decided += [f"{one.reason}: {cut(' '.join(one.theirs.split()), _SHOWN)}" for one in merged.flags]
    decided += [f"{_MADE_TWICE}: {one}" for one in twice]
    ids = tuple(hunk.id for hunk in left)
    return Draft(first.runner.path, first.unit, first.group, ids, text, len(conflicts), tuple(decided))


def _of_rewritten(
    hunks: Sequence[Hunk],
    anew: Sequence[Conflict],
    pieces: Sequence[Piece],
    ours: Sequence[Statement],
    known: Collection[str],
) -> list[Hunk]:
    """The hunks that are in what the GPU side wrote anew, and those that belong to them.

    These take out what ours reads there, or share a name with them that ours has not ``known``.
    """
    new = {one.key for conflict in anew for one in conflict.theirs}
    old = {one.key for conflict in anew for one in conflict.base}
    kept = resolved(pieces, "ours")
    lost = (free_names(kept) | may_be_unbound(kept)) - free_names(ours) - may_be_unbound(ours)
    found = [
        hunk
        for hunk in hunks
        if hunk.added.keys() & new or hunk.removed.keys() & old or defines(hunk.removed) & lost
    ]
    return _belonging(found, hunks, known, (reads(new) | defines(new)).difference(known))


def _belonging(
    found: Sequence[Hunk], hunks: Sequence[Hunk], known: Collection[str], names: Collection[str] = ()
) -> list[Hunk]:
    """``found``, and the hunks that share one of ``names`` with them or what the method has not ``known``."""
    out, left, shared = list(found), [hunk for hunk in hunks if hunk not in found], set(names)
    more = out
    while more:
        shared |= defines(key for hunk in more for key in hunk.added).difference(known)
        more = [hunk for hunk in left if (reads(hunk.added) | defines(hunk.added)) & shared]
        out += more
        left = [hunk for hunk in left if hunk not in more]
    return out


def _calling_what_lacks(hunks: Sequence[Hunk], npu: NpuSide) -> dict[str, str]:
    """The hunks, by id, that call a method of the GPU class that the NPU class lacks, with its name."""
    runner = hunks[0].runner
    gpu, own = npu.program.find_class(runner.gpu_path, runner.gpu_class), npu.cls(runner)
    if gpu is None or own is None:
        return {}
    node = npu.modules[runner.kind].class_def(runner.class_name)
    bases = {dotted(base).rpartition(".")[2] for base in node.bases} if node else set()
    owners = {cls.name for cls in own.mro}  # the classes of the tree, the methods of the texts beside them
    units = (unit for module in npu.modules.values() for unit in module.units.values())
    has = {unit.name for unit in units if unit.owner in owners}
    called = ((hunk.id, name) for hunk in hunks for key in hunk.added for name in _CALL.findall(key))
    lacks = ((id_, name) for id_, name in called if name not in has and not own.lookup(name))
    # a class that the texts derive from by now is not among those of the tree
    gives = {name: cls.name for cls in reversed(gpu.mro) for name in cls.methods}
    return {id_: f"self.{name}()" for id_, name in lacks if gives.get(name, "") not in {"", *bases}}


def _new_steps(
    diff: UnitDiff, pieces: Sequence[Change], runner: Runner, npu: NpuSide
) -> list[tuple[Statement, ...]]:
    """What gave way, on the GPU side, to a call of its own that the NPU class has and nothing there makes.

    The call is a step of what is brought: it has a place also where the NPU side never had what was before.
    """
    cls = npu.cls(runner)
    texts = [*(one.key for one in diff.old), *npu.texts.values()]
    found = []
    for piece in pieces:
        old, new = diff.old[piece.a0 : piece.a1], diff.new[piece.b0 : piece.b1]
        called = [_called(one.key) for one in new]
        has = (cls and name and cls.lookup(name) for name in called)
        if old and new and all(has) and not any(f"self.{name}(" in text for name in called for text in texts):
            found.append(tuple(old))
    return found


def _less_kept(base: Sequence[Statement], diff: UnitDiff, upstream: Sequence[Statement]) -> list[Statement]:
    """``base`` without what the GPU side only took out and vllm-ascend's own method has still: it stays here.

    It followed vLLM in that, and vllm-ascend did not.
    """
    has, new = {one.key for one in upstream}, {one.key for one in diff.new}
    taken_out = [
        one for piece in diff.pieces if piece.b0 == piece.b1 for one in diff.old[piece.a0 : piece.a1]
    ]
    kept = {one.key for one in taken_out if not one.is_header} & has - new
    left = [one for one in base if one.key not in kept]
    return left if syntax_error(left) is None else list(base)


def _called(key: str) -> str:
    """The method of ``self`` that a statement calls and does nothing else; empty where it does."""
    call = next((node.value for node in nodes_of(key)[1:2] if isinstance(node, ast.Expr)), None)
    name = dotted(call.func) if isinstance(call, ast.Call) else ""
    return name.removeprefix("self.") if name.startswith("self.") and name.count(".") == 1 else ""


def _less_replaced(
    base: Sequence[Statement], ours: Sequence[Statement], steps: Sequence[Sequence[Statement]]
) -> list[Statement]:
    """``base`` without what such a step replaced, where ours has nothing of it."""
    has = {one.key for one in ours}
    gone = Counter(one.key for step in steps if has.isdisjoint(part.key for part in step) for one in step)
    left = []
    for one in base:
        if gone[one.key]:
            gone[one.key] -= 1
        else:
            left.append(one)
    return left if syntax_error(left) is None else list(base)


def _laid_out(ours: Sequence[Statement], pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces, the statements among them with the NPU side's own blank lines."""
    plain = iter(laid_out(ours, [piece for piece in pieces if isinstance(piece, Statement)]))
    return [piece if isinstance(piece, Conflict) else next(plain) for piece in pieces]
