"""Three-way merge of syntax trees: what one side changed is taken, what both changed clashes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from npu_upgrade.code.sequences import Change, changes, patience
from npu_upgrade.code.walk import dotted
from npu_upgrade.threeway.signature_merge import Parameter, alternatives, arguments, parameters, union_of
from npu_upgrade.threeway.trees import (
    Node,
    counterpart,
    dump,
    is_version,
    item_changes,
    other_operator,
    same,
    substituted,
    wraps,
)


class Clash(Exception):
    """Both sides changed the same piece."""


@dataclass
class TreeMerge:
    """One merge; ``kept_callees`` and ``dropped`` tell where it followed omni against upstream.

    ``omni_names`` stand for omni's own functions and classes; ``near`` is set where the two changes
    may bear on each other: they are not in two arguments, operands of ``and`` and ``or`` or elements.
    """

    omni_names: frozenset[str] = frozenset()
    kept_callees: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    near: bool = False

    def merge(self, base: Node, ours: Node, theirs: Node) -> Node:
        """The merged tree; raises :class:`Clash`."""
        if same(ours, theirs) or same(theirs, base):
            return ours
        if same(ours, base):
            return theirs
        if isinstance(base, ast.stmt):
            base, ours, theirs = _hinted_alike(base, ours, theirs)
        changed = _around(base, ours, theirs)
        if changed is not None:
            self.near = True
            return changed
        if not type(base) is type(ours) is type(theirs) or other_operator(base, ours, theirs):
            raise Clash
        if isinstance(base, ast.Call) and _by_name_to_subclass(base, ours, theirs):
            keywords = (call.keywords for call in (base, ours, theirs))
            return ast.Call(ours.func, [], self._field(ast.Call, "keywords", *keywords))
        if isinstance(base, ast.Call) and (_callee_replaced(base, ours, theirs) or self._is_own(ours.func)):
            self.kept_callees.append(ast.unparse(ours.func))
            return ours
        if isinstance(base, ast.Call) and self._respelled(base, ours, theirs):
            self.near |= not same(base.func, ours.func)
            ours = ast.Call(theirs.func, ours.args, ours.keywords)
        if isinstance(base, ast.arguments):
            return self._parameters(base, ours, theirs)
        if isinstance(base, ast.Return) and _shifts_items(base, ours, theirs):
            raise Clash
        merged = type(base)()
        apart = type(base) is ast.Call and same(base.func, ours.func) and same(base.func, theirs.func)
        self.near |= not apart and _several_fields(base, ours, theirs)
        for name in base._fields:
            values = [getattr(node, name, None) for node in (base, ours, theirs)]
            setattr(merged, name, self._field(type(base), name, *values))
        return merged

    def _field(self, owner: type, name: str, base: Node, ours: Node, theirs: Node) -> Node:
        if isinstance(base, list) and isinstance(ours, list) and isinstance(theirs, list):
            if owner is ast.Call and name == "keywords":
                if _may_pass_twice(base, ours, theirs):
                    raise Clash
                return self._named(base, ours, theirs, _keyword_name)
            return self._sequence(base, ours, theirs)
        if all(isinstance(node, ast.AST) for node in (base, ours, theirs)):
            hint = name in ("annotation", "returns")
            return _annotation(base, ours, theirs) if hint else self.merge(base, ours, theirs)
        if same(ours, theirs) or same(theirs, base):
            return ours
        if same(ours, base):
            return theirs
        if name in ("annotation", "returns"):
            return ours  # one side has no type hint here: none is lost that anything reads
        raise Clash

    def _is_own(self, func: Node) -> bool:
        """Whether omni calls something of its own, also where that bears the name of upstream's."""
        return (dotted(func) or "").partition(".")[0] in self.omni_names

    def _respelled(self, base: Node, ours: Node, theirs: Node) -> bool:
        """Whether omni only writes the callee's module path in another way."""
        if not all(dotted(node.func) for node in (base, ours, theirs)):
            return False
        funcs = [ast.unparse(node.func) for node in (base, ours, theirs)]
        names = {func.rpartition(".")[2] for func in funcs}
        return funcs[0] == funcs[2] and len(names) == 1 and funcs[1].partition(".")[0] not in self.omni_names

    def _parameters(self, base: Node, ours: Node, theirs: Node) -> Node:
        known, mine, upstream = (parameters(side) for side in (base, ours, theirs))
        in_base, in_ours, in_theirs = ({p.arg.arg: p for p in side} for side in (known, mine, upstream))
        if in_base.keys() != in_ours.keys():
            # Who calls ours does so by its own signature: what it passes stays, and no more is asked.
            names = {new for old, new in _renamed(known, upstream) if old in in_ours and new not in in_ours}
            upstream = [_optional(p, in_ours) for p in upstream if p.arg.arg not in names]
            known = [p for name, p in in_base.items() if name in in_theirs or name not in in_ours]
            new = [p for p in upstream if p.arg.arg not in in_base and p.arg.arg not in in_ours]
            if any(p.default is None and p.kind not in ("vararg", "kwarg") for p in new):
                raise Clash
        merged = arguments(self._named(known, mine, upstream, lambda node: node.arg.arg))
        if merged is None:
            raise Clash
        return merged

    def _named(self, base: list, ours: list, theirs: list, name: Callable[[Node], str]) -> list:
        """Merge arguments by name, in ours' order; what ours dropped stays dropped."""
        by = [{name(node): node for node in side} for side in (base, ours, theirs)]
        if any(len(names) != len(side) for names, side in zip(by, (base, ours, theirs), strict=True)):
            return self._sequence(base, ours, theirs)
        kept: list = []
        for key in _interleaved([*by[1]], [*by[2]]):
            in_base, in_ours, in_theirs = (names.get(key) for names in by)
            if in_ours is not None and in_theirs is not None:
                both_new = in_base is None and not same(in_ours, in_theirs)
                newer = _newer_spelling(in_ours, in_theirs) if both_new else None
                kept.append(newer or self.merge(in_base or in_theirs, in_ours, in_theirs))
            elif in_base is None:
                kept.append(in_ours or in_theirs)
            elif in_ours is not None and not same(in_base, in_ours):
                raise Clash  # upstream dropped the argument that omni had changed
            elif in_theirs is not None and not same(in_base, in_theirs):
                self.dropped.append(key)
        return kept

    def _sequence(self, base: list, ours: list, theirs: list) -> list:
        """Merge items in order; items at one place combine when they only add or pair up."""
        edits = [(change, 0) for change in item_changes(base, ours)]
        edits += [(change, 1) for change in item_changes(base, theirs)]
        edits.sort(key=lambda edit: (edit[0].a0, edit[0].a1, -edit[1]))
        rewritten = [
            {n for c, s in edits if s == side and not is_version(base, version, c) for n in range(c.a0, c.a1)}
            for side, version in enumerate((ours, theirs))
        ]
        merged: list = []
        place = 0
        while edits:
            change, side = edits.pop(0)
            if change.a0 < place:
                raise Clash
            merged += base[place : change.a0]
            place = change.a1
            if change.a0 == change.a1 and change.a0 in rewritten[1 - side] - rewritten[side]:
                raise Clash  # added beside an item that the other side alone rewrote: before or after?
            if edits and edits[0][1] != side and _meet(change, edits[0][0]):
                other = edits.pop(0)[0]
                mine, upstream = (other, change) if side else (change, other)
                merged += self._overlap(base, ours, theirs, mine, upstream)
                place = max(place, other.a1)
            else:
                merged += (ours, theirs)[side][change.b0 : change.b1]
        return merged + base[place:]

    def _overlap(self, base: list, ours: list, theirs: list, mine: Change, upstream: Change) -> list:
        left, right = ours[mine.b0 : mine.b1], theirs[upstream.b0 : upstream.b1]
        same_place = mine[:2] == upstream[:2]
        if same_place and same(left, right):
            return left
        if mine.a0 == mine.a1 == upstream.a0 == upstream.a1:
            self.near = True
            return _both_added(left, right)
        old = base[mine.a0 : mine.a1]
        if same_place and len(old) == len(left) == len(right):
            return [self.merge(*nodes) for nodes in zip(old, left, right, strict=True)]
        raise Clash


def _around(base: Node, ours: Node, theirs: Node) -> Node | None:
    """The merge where one side only put something around the expression, or took it away."""
    for inner, outer in ((ours, theirs), (theirs, ours)):
        if wraps(outer, base):
            return substituted(outer, base, inner)
    for part, whole in ((ours, theirs), (theirs, ours)):
        if wraps(base, part):
            if isinstance(base, ast.IfExp):
                raise Clash  # one side no longer chooses, the other one chooses between other things
            return counterpart(base, part, whole)
        if wraps(whole, part):
            # The inner part changed alike on both sides; one of them took the rest away.
            before = counterpart(whole, part, base)
            if before is not None and same(substituted(whole, part, before), base):
                return part
            if before is None and type(part) is type(base):
                return whole  # changed alike, and one of them put something around it
    return None


def _several_fields(base: Node, ours: Node, theirs: Node) -> bool:
    """Whether the sides changed different fields of a node."""
    changed = [
        {name for name in base._fields if not same(getattr(base, name, None), getattr(side, name, None))}
        for side in (ours, theirs)
    ]
    return len(changed[0] | changed[1]) > 1


def _hinted_alike(*sides: Node) -> Sequence[Node]:
    """Assignments without the type hint that not all of them have."""
    hinted = [side for side in sides if isinstance(side, ast.AnnAssign)]
    plain = [side for side in sides if isinstance(side, ast.Assign)]
    if not plain or len(plain) + len(hinted) < len(sides) or any(side.value is None for side in hinted):
        return sides
    return [side if side in plain else ast.Assign([side.target], side.value) for side in sides]


def _callee_replaced(base: Node, ours: Node, theirs: Node) -> bool:
    """Whether omni calls something else here, so that upstream's new arguments may not fit."""
    names = [ast.unparse(node.func).rpartition(".")[2] for node in (base, ours, theirs)]
    return names[0] == names[2] != names[1]


def _by_name_to_subclass(base: Node, ours: Node, theirs: Node) -> bool:
    """Whether omni makes its own subclass of upstream's class here, each with arguments by name alone.

    The subclass takes what its base takes; its name ends in that of its base, as the field has it.
    """
    names = [ast.unparse(node.func).rpartition(".")[2] for node in (base, ours, theirs)]
    if not names[0] == names[2] != names[1] or not names[1].endswith(names[0]) or not names[0][:1].isupper():
        return False
    return not any(node.args for node in (base, ours, theirs))


def _optional(node: Node, in_ours: Mapping[str, Node]) -> Node:
    """A parameter with ours' default, where it has none any more."""
    own = in_ours.get(node.arg.arg)
    return Parameter(node.kind, node.arg, own.default) if own and node.default is None else node


def _renamed(base: list, theirs: list) -> list[tuple[str, str]]:
    """The parameters in whose places upstream has others with a default of the same sort, with those."""
    names = [node.arg.arg for node in base], [node.arg.arg for node in theirs]
    gaps = changes(patience(*names), len(base), len(theirs))
    same = [g for g in gaps if g.a1 - g.a0 == g.b1 - g.b0]
    pairs = [(n, n + g.b0 - g.a0) for g in same for n in range(g.a0, g.a1)]
    optional = [(i, j) for i, j in pairs if (base[i].default is None) == (theirs[j].default is None)]
    return [(names[0][i], names[1][j]) for i, j in optional]


def _shifts_items(base: Node, ours: Node, theirs: Node) -> bool:
    """Whether one side returns an item less and the other one more: callers take them by position."""
    if not all(isinstance(node.value, ast.Tuple) for node in (base, ours, theirs)):
        return False
    known, mine, upstream = (len(node.value.elts) for node in (base, ours, theirs))
    return mine < known < upstream or upstream < known < mine


def _may_pass_twice(base: list, ours: list, theirs: list) -> bool:
    """Whether one side newly passes a mapping that may hold what the other side newly passes by name."""
    known, *sides = ({_keyword_name(node) for node in side} for side in (base, ours, theirs))
    mine, upstream = (side - known for side in sides)
    for one, other in ((mine - upstream, upstream - mine), (upstream - mine, mine - upstream)):
        if any(name.startswith("**") for name in one) and not all(name.startswith("**") for name in other):
            return True
    return False


def _annotation(base: Node, ours: Node, theirs: Node) -> Node:
    """Merge type hints as sets of alternatives; spelling alone is no change."""
    sides = [alternatives(side) for side in (base, ours, theirs)]
    in_base, in_ours, in_theirs = ({dump(node) for node in side} for side in sides)
    if in_theirs == in_base:
        return ours
    if in_ours == in_base:
        return theirs
    if in_base.isdisjoint(in_ours | in_theirs):
        return ours  # each has another hint in its place: nothing reads one, and both together say less
    kept = [n for n in sides[1] if dump(n) in in_theirs or dump(n) not in in_base]
    kept += [n for n in sides[2] if dump(n) not in in_base | in_ours]
    if not kept:
        raise Clash
    return union_of(kept)


def _newer_spelling(ours: Node, theirs: Node) -> Node:
    """Upstream's way to pass an argument that both sides added with one value."""
    keywords = isinstance(ours, ast.keyword) and isinstance(theirs, ast.keyword)
    if keywords and same(_value(ours), _value(theirs)):
        return theirs
    raise Clash


def _value(node: Node) -> Node:
    """What a keyword argument passes, also in the form ``**{"name": value}``."""
    return node.value.values[0] if node.arg is None else node.value


def _keyword_name(node: Node) -> str:
    """The name of a keyword argument; ``**{"name": value}`` passes ``name`` too."""
    if node.arg:
        return node.arg
    value = node.value
    if isinstance(value, ast.Dict) and len(value.keys) == 1 and isinstance(value.keys[0], ast.Constant):
        return str(value.keys[0].value)
    return "**" + ast.unparse(value)


def _interleaved(first: list[str], second: list[str]) -> list[str]:
    """All names, in the order of ``first``.

    Those only in ``second`` stand after their neighbour and what ``first`` alone has there.
    """
    order = list(first)
    for number, name in enumerate(second):
        if name not in order:
            before = next((n for n in reversed(second[:number]) if n in order), None)
            place = order.index(before) + 1 if before is not None else 0
            while place < len(order) and order[place] not in second:
                place += 1
            order.insert(place, name)
    return order


def _meet(a: Change, b: Change) -> bool:
    """Whether two edits change a common item, or add items at one place."""
    return (a.a0 < b.a1 and b.a0 < a.a1) or a.a0 == a.a1 == b.a0 == b.a1


def _both_added(left: list, right: list) -> list:
    """Items that both sides added at one place: upstream's first."""
    if any(isinstance(node, ast.stmt) for node in left + right):
        raise Clash
    known = {dump(node) for node in right}
    return [*right, *(node for node in left if dump(node) not in known)]
