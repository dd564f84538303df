"""Which commits of upstream's needed a hand, told from the release that took them over.

The watch is not asked. A commit is judged by the first later release of the downstream whose runners are
based on a version after it; commits that no release took over are not judged. It needed a hand when one of
these holds:

- place: it changed a statement of a unit that the earlier release had copied, the earlier release had words
  of its own at that place, the later one changed the place, and did with what the commit put or removed (as
  far as that lasted) what the automatic merge onto the later one's base does not do: with a statement, or
  with a word of it. Where the merge has a conflict, it does nothing. A statement that the later release left
  as if the commit had never been, with no words of its own for it, shows no hand: it shows that nobody
  looked. Nor does one that says all that the merge brought there, and more besides.
- copied: it added a function that the earlier release had nowhere, and of which the later one has a copy: no
  merge makes one.
- name: it removed a definition (or what a function set) that the later release's base has nowhere, a
  statement of the earlier release's own named it, and the later release has no such statement any more.
- parameters: it changed the parameters of a function, a statement of the earlier release's own overrode it by
  that name or called it with what it takes no more, and the later release has another statement there.

Texts are compared as the later release's vllm runs them, which has the number of that release: upstream
asks for the version at many places, and who copies that for one version leaves the other one out.
"""

from __future__ import annotations

import ast
import builtins
import functools
import keyword
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from packaging.version import Version

from npu_upgrade.code.module import parse_module
from npu_upgrade.code.signatures import Function, misfits, signature
from npu_upgrade.code.statements import END, Statement, nodes_of, render, split_statements
from npu_upgrade.code.walk import last_name, string
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.lineage.inference import Lineage
from npu_upgrade.lineage.records import Bases, MethodLineage
from npu_upgrade.merge.runners import merge_unit, own_names
from npu_upgrade.program.version_guards import evaluate, version_of, without_dead
from npu_upgrade.threeway.align import fine_changes, resembles
from npu_upgrade.threeway.method import Context
from npu_upgrade.threeway.pieces import resolved
from npu_upgrade.watch.ties import text_of

Keys = list[str]
_DEF = ("def ", "async def ")
_WORD = re.compile(r"[A-Za-z_]\w*")
_PYTHON = {*keyword.kwlist, *dir(builtins), "self"}


@dataclass(frozen=True)
class Upgrade:
    """Two releases with their lineages, and upstream at what the later one is based on: file -> text."""

    before: Downstream
    after: Downstream
    lineage: Lineage
    taken: Lineage
    target: Mapping[str, str]
    bases: Bases

    @cached_property
    def vllm(self) -> Version | None:
        """The one that the later release has the number of."""
        found = version_of(self.after.tree.version)
        return Version(found.base_version) if found else None

    @cached_property
    def new(self) -> set[str]:
        """The upstream units that the later release copies under a name that the earlier one had nowhere."""
        return {
            entry.upstream
            for entry in self.taken.copied
            if entry.name.rpartition(".")[2] not in self.own and not unit(self.before, entry)
        }

    @cached_property
    def copies(self) -> list[MethodLineage]:
        """The copies of the earlier release that the later one still has."""
        return [entry for entry in self.lineage.copied if unit(self.after, entry)]

    @cached_property
    def defined(self) -> set[str]:
        """The names that upstream's later code defines, without the classes they are in."""
        return {name.rpartition(":")[2].rpartition(".")[2] for name, _ in _definitions(self.target)}

    @cached_property
    def own(self) -> dict[str, set[str]]:
        """Word -> statements of the earlier release's own, its imports and heads of classes too."""
        found: dict[str, set[str]] = {}
        for path in self.before.paths:
            for key in _statements(self.before, path) - self._copied(path):
                for word in set(_WORD.findall(key)):
                    found.setdefault(word, set()).add(key)
        return found

    @cached_property
    def later(self) -> set[str]:
        """All statements of the later release."""
        return {key for path in self.after.paths for key in _statements(self.after, path)}

    def _copied(self, path: str) -> set[str]:
        """What a merge sees to in a file: the statements that copies were taken with, and their heads.

        A copy of what upstream has no more is not merged.
        """
        target = self.target[self.before.upstream.path]
        entries = [
            entry
            for entry in self.lineage.copied
            if entry.path == path and entry.best and text_of(target, entry.upstream)
        ]
        history = self.lineage.history
        texts = (history.unit(self.bases.version(entry), entry.upstream) for entry in entries)
        heads = {key for entry in entries for key in keys(unit(self.before, entry)) if key.startswith(_DEF)}
        return heads | {key for text in texts if text for key in keys(text)}


def _statements(side: Downstream, path: str) -> set[str]:
    """The statements of a file: those of its units, its imports and the heads of its classes."""
    module = parse_module(side.tree.read(path))
    found = {key for one in module.units.values() for key in keys(one.source)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            found |= {f"from {node.module} import {item.name}" for item in node.names}
        elif isinstance(node, ast.ClassDef):
            found.add(f"class {node.name}({', '.join(map(ast.unparse, node.bases))})")
    return found


def needed(upgrade: Upgrade, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Why a commit needed a hand, nothing where it did not; the texts of the files that it changed."""
    return [
        *_places(upgrade, before, after),
        *_copied(upgrade, before, after),
        *_names(upgrade, before, after),
    ]


def keys(source: str) -> Keys:
    """The statements of a unit."""
    return [one.key for one in _statements_of(source)]


@functools.lru_cache(maxsize=4096)
def settled(source: str, vllm: Version | None) -> str:
    """A unit as a vllm runs it: without what is for another one; as it is where that cannot be read."""
    if vllm is None:
        return source
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return source
    return ast.unparse(_Settled(vllm).visit(without_dead(tree, vllm)))


class _Settled(ast.NodeTransformer):
    def __init__(self, vllm: Version) -> None:
        self.vllm = vllm

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        known = evaluate(node.test, self.vllm)
        return node if known is None else node.body if known else node.orelse

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Keywords that are spread only to depend on a version are as any other."""
        self.generic_visit(node)
        node.keywords = [one for spread in node.keywords for one in _plain(spread)]
        return node


def _plain(spread: ast.keyword) -> list[ast.keyword]:
    items = spread.value
    if spread.arg is None and isinstance(items, ast.Dict) and all(key and string(key) for key in items.keys):
        pairs = zip(items.keys, items.values, strict=True)
        return [ast.keyword(string(key), value) for key, value in pairs if key]
    return [spread]


def unit(side: Downstream, entry: MethodLineage) -> str:
    """The text of a unit in a release, empty where it has none."""
    if not side.tree.exists(entry.path):
        return ""
    found = parse_module(side.tree.read(entry.path)).units.get(entry.name)
    return found.source if found else ""


def _places(upgrade: Upgrade, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    path = upgrade.before.upstream.path
    if path not in after:
        return
    for entry in upgrade.copies:
        texts = [text_of(some[path], entry.upstream) or "" for some in (before, after)]
        if texts[0] == texts[1]:
            continue
        sides = _Sides.of(upgrade, entry)
        for vllm, judge in ((None, sides.contested), (upgrade.vllm, sides.by_hand)):
            was, now = (_statements_of(settled(text, vllm)) for text in texts)
            if any(judge(was, (one.a0, one.a1), now[one.b0 : one.b1]) for one in fine_changes(was, now)):
                yield f"place: {entry.name}"
                break


def _copied(upgrade: Upgrade, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    path = upgrade.before.upstream.path
    if path in after:
        for name in sorted(upgrade.new):
            if text_of(after[path], name) and not text_of(before[path], name):
                yield f"copied: {name}"


def _statements_of(source: str) -> list[Statement]:
    return [one for one in split_statements(source) if one.key != END]


@dataclass(frozen=True)
class _Sides:
    """One copy: its base, upstream's text that the later release is based on, both releases', the merge."""

    base: Keys
    target: Keys
    ours: Keys
    later: Keys
    merged: Keys
    disputed: frozenset[str]
    """The statements of upstream's, of the base and of the target, that stand in conflicts only."""

    @classmethod
    def of(cls, upgrade: Upgrade, entry: MethodLineage) -> _Sides:
        module = parse_module(upgrade.before.tree.read(entry.path))
        one, path = module.units[entry.name], upgrade.before.upstream.path
        theirs = text_of(upgrade.target[path], entry.upstream)
        context = Context(None, own_names(module, entry.path))
        outcome = merge_unit(entry, one, theirs, upgrade.bases, context)
        merged = outcome.merged
        disputed = {
            statement.key
            for conflict in (merged.conflicts if merged else ())
            for statement in (*conflict.base, *conflict.theirs)
        }
        disputed -= {piece.key for piece in (merged.pieces if merged else ()) if isinstance(piece, Statement)}
        found = render(resolved(merged.pieces, "ours")) if merged else one.source
        texts = (outcome.base_text, theirs or "", one.source, unit(upgrade.after, entry), found)
        return cls(*(keys(settled(text, upgrade.vllm)) for text in texts), frozenset(disputed))

    def contested(
        self, upstream: Sequence[Statement], span: tuple[int, int], added: Sequence[Statement]
    ) -> bool:
        """Whether the merge leaves a span, or what upstream put for it, to a person; the release decided."""
        touched = {one.key for one in (*upstream[slice(*span)], *added)}
        return bool(self.disputed & touched) and self._at(upstream, span) is not None

    def by_hand(
        self, upstream: Sequence[Statement], span: tuple[int, int], added: Sequence[Statement]
    ) -> bool:
        """Whether the later release did what no merge does where upstream put ``added`` for a span."""
        place = self._at(upstream, span)
        if place is None:
            return False
        ours, merged, here = place
        removed = upstream[slice(*span)]
        if self._takes(removed, added, ours, merged, here):
            return True
        own = [key for key in here if key not in {*self.ours, *self.merged}]
        lasting = {one.key for one in added if one.key in self.target}
        lasting -= {key for key in lasting if key in self.merged and any(_says(one, key) for one in own)}
        stood = {one.key for one in removed if one.key in self.ours and one.key not in self.target}
        there = set(merged) ^ set(here)
        if not (lasting | stood) & (set(self.merged) ^ set(self.later)) & there:
            return False
        reworked = any(resembles(one, Statement(key, 0, ())) for one in (*removed, *added) for key in own)
        return reworked or bool(stood - set(self.later) or lasting & set(self.later) - set(self.ours))

    def _at(self, upstream: Sequence[Statement], span: tuple[int, int]) -> tuple[Keys, Keys, Keys] | None:
        """What ours, the merge and the later release have at a place; None where the release shows nothing.

        That is where we had no words of our own, and where they stayed as they were.
        """
        at_base = carried([one.key for one in upstream], self.base, span)
        at_ours = carried(self.base, self.ours, at_base)
        ours = self.ours[slice(*at_ours)]
        merged, here = (
            other[slice(*carried(self.ours, other, at_ours))] for other in (self.merged, self.later)
        )
        return None if ours in (self.base[slice(*at_base)], here) else (ours, merged, here)

    def _takes(
        self,
        removed: Sequence[Statement],
        added: Sequence[Statement],
        ours: Keys,
        merged: Keys,
        here: Keys,
    ) -> bool:
        """Whether the later release took a word of upstream's new text, or dropped one, and the merge not."""
        was, now = (words(one.key for one in some) for some in (removed, added))
        lasting = words(self.target)
        put, gone = (now - was) & lasting, was - now - lasting
        return bool(
            put & more(here, ours) & more(here, merged) or gone & more(ours, here) & more(merged, here)
        )


def more(one: Keys, other: Keys) -> set[str]:
    """The words of one's statements that those of the other like them have not; all have not, if none is."""
    found: set[str] = set()
    for key in set(one) - set(other):
        like = [each for each in other if resembles(Statement(key, 0, ()), Statement(each, 0, ()))]
        found |= words([key]) - words(like or other)
    return found


def words(found: Iterable[str]) -> set[str]:
    """The names in statements, without Python's own."""
    return {word for key in found for word in _WORD.findall(key)} - _PYTHON


def _says(own: str, brought: str) -> bool:
    """Whether a statement is another one with more in it: each expression of that one stands in it whole."""
    one, other = (
        next((node for node in nodes_of(key) if isinstance(node, ast.stmt)), None) for key in (own, brought)
    )
    parts = [getattr(node, "context_expr", node) for node in ast.iter_child_nodes(other)] if other else []
    said = {ast.dump(node) for node in nodes_of(own)}
    wanted = {ast.dump(node) for node in parts if isinstance(node, ast.expr)}
    return type(one) is type(other) and bool(wanted) and wanted <= said


def carried(one: Keys, other: Keys, span: tuple[int, int]) -> tuple[int, int]:
    """Where a span of one text is in another: between the nearest equal statements around it."""
    start, end = 0, len(other)
    for a, b, size in SequenceMatcher(None, one, other, False).get_matching_blocks():
        if size and a < span[0]:
            start = b + min(size, span[0] - a)
        if size and a + size > span[1]:
            end = b + max(0, span[1] - a)
            break
    return start, max(start, end)


def _names(upgrade: Upgrade, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    had, has = (dict(_definitions(texts)) for texts in (before, after))
    for place, was in had.items():
        *owners, name = place.rpartition(":")[2].split(".")
        if name == "__init__" and owners:
            name = owners[-1]
        now, gone = has.get(place), place not in has and name not in upgrade.defined
        other = was and now and signature(was) != signature(now)
        known = all(owner in upgrade.own for owner in owners)
        own = upgrade.own.get(name, set()) if known and (gone or other) else set()
        if not owners and not any(key.endswith(f" import {name}") for key in own):
            continue
        if was and now:
            own = {
                key
                for key in own
                if not key.startswith(("from ", "import ")) and touched(key, name, was, now)
            }
        if own - upgrade.later:
            yield f"{'name' if gone else 'parameters'}: {place}"


def touched(key: str, name: str, was: Function, now: Function) -> bool:
    """Whether a statement that names a function is wrong with its new parameters: all but calls that fit."""
    calls = [one for one in nodes_of(key) if isinstance(one, ast.Call) and last_name(one.func) == name]
    bound = any(arg.arg in ("self", "cls") for arg in was.args.args[:1])
    return not calls or bool(misfits(calls, was, now, bound))


def _definitions(texts: Mapping[str, str]) -> Iterator[tuple[str, Function | None]]:
    """What files define: functions with their syntax; classes, attributes and values without."""
    for path, text in texts.items():
        for owner, node in _bodies(ast.parse(text).body):
            if isinstance(node, Function):
                yield f"{path}:{owner}{node.name}", node
                yield from ((f"{path}:{owner}{name}", None) for name in _set_in(node, True))
                yield from ((f"{path}:{owner}{node.name}.{name}", None) for name in _set_in(node, False))
            elif isinstance(node, ast.ClassDef):
                yield f"{path}:{owner}{node.name}", None
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from ((f"{path}:{owner}{one.id}", None) for one in targets if isinstance(one, ast.Name))


def _bodies(nodes: Iterable[ast.stmt], owner: str = "") -> Iterator[tuple[str, ast.stmt]]:
    for node in nodes:
        yield owner, node
        if isinstance(node, ast.ClassDef):
            yield from _bodies(node.body, f"{node.name}.")
        elif isinstance(node, (ast.If, ast.Try)):
            yield from _bodies([*node.body, *node.orelse], owner)


def _set_in(node: ast.AST, on_self: bool) -> set[str]:
    """The attributes that a function sets on ``self``, or on anything else."""
    return {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and (isinstance(one.value, ast.Name) and one.value.id == "self") is on_self
    }
