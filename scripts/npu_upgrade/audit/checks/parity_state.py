"""State that the NPU side makes or clears otherwise than the class it follows: resets and tensors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.parity.lost import EMPTY
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import dotted, last_name, walk
from npu_upgrade.ground.tables import cut
from npu_upgrade.program.facts import effective
from npu_upgrade.program.program import ClassSymbol, File, Method
from npu_upgrade.program.self_use import self_use

ABOUT = "attributes that the class followed clears after use, and tensors of another size or type than there"

_MAKERS = {"zeros", "ones", "empty", "full", "arange", "_make_buffer", "CpuGpuBuffer"}
_PLACED = {"device", "pin_memory", "numpy", "with_numpy", "requires_grad", "out"}
_WORD = re.compile(r"\w+")
_CLEARS = ("reset", "clear")


def check(world: World) -> Iterator[Finding]:
    told: set[tuple[str, str]] = set()
    for cls in world.side.classes:
        for method in cls.methods.values():
            for model in _models_of(cls, method.name, world):
                for finding in (*_resets(cls, method, model), *_tensors(method, model)):
                    if (finding.owner, finding.subject) not in told:
                        told.add((finding.owner, finding.subject))
                        yield finding
    for file in world.files:
        yield from _half_cleared(file)


def _models_of(cls: ClassSymbol, name: str, world: World) -> list[Method]:
    """What a method of an NPU class follows: the GPU side's method, and the nearest that it overrides."""
    mirror = world.side.mirror(cls)
    above = (o for o in cls.mro[1:] if name in o.methods and o.file not in world.files)
    found = [mirror.lookup(name) if mirror else None, *(owner.methods[name] for owner in islice(above, 1))]
    return [model for model in found if model and model.owner.file not in world.files]


def _resets(cls: ClassSymbol, method: Method, model: Method) -> Iterator[Finding]:
    """Attributes that both read, and that only the model clears."""
    if method.name == "__init__":
        return
    cleared, own = self_use(model.node), self_use(method.node)
    names = [
        name
        for name, writes in cleared.writes.items()
        if name in cleared.reads
        and name in own.reads
        and all(w.value and unparse(w.value) in EMPTY for w in writes)
    ]
    reached = effective(cls).reach(method).values() if names else ()
    written = {name for place in reached for name in self_use(place.node).writes}
    for name in names:
        if name not in written:
            what = f"{method.qualname} reads self.{name} and does not clear it, as {model.qualname} does"
            yield _finding("not-reset", method, model, name, what, cleared.writes[name][0].node)


def _tensors(method: Method, model: Method) -> Iterator[Finding]:
    """Tensors that one statement of both makes for the same name, of another size or type."""
    theirs = dict(_made(model.node))
    for name, call in _made(method.node):
        other = theirs.get(name)
        if other is None or last_name(other.func) != last_name(call.func):
            continue
        # A device has its own types; the two sides of one project compute with the same.
        types = method.owner.project == model.owner.project
        for pair in _differ(call, other, types=types):
            what = f"{method.qualname} makes {name} with {pair[0]}, and {model.qualname} with {pair[1]}"
            yield _finding("tensor", method, model, f"{name} of {pair[1]}", what, other)


def _made(node: Function) -> Iterator[tuple[str, ast.Call]]:
    for inner in walk(node):
        call = inner.value if isinstance(inner, ast.Assign) and len(inner.targets) == 1 else None
        if isinstance(call, ast.Call) and last_name(call.func) in _MAKERS:
            assert isinstance(inner, ast.Assign)
            yield unparse(inner.targets[0]), call


def _differ(ours: ast.Call, theirs: ast.Call, *, types: bool) -> list[tuple[str, str]]:
    """The sizes (and types, where these count) that are others, not larger ones, in both spellings."""
    if len(ours.args) != len(theirs.args):
        return []
    named = {keyword.arg: keyword.value for keyword in ours.keywords}
    pairs = list(zip(ours.args, theirs.args, strict=True))
    left_out = _PLACED if types else _PLACED | {"dtype"}
    pairs += [(named[k.arg], k.value) for k in theirs.keywords if k.arg in named and k.arg not in left_out]
    texts = ((unparse(one), unparse(other)) for one, other in pairs)
    return [pair for pair in texts if not _words(pair[1]) <= _words(pair[0])]


def _words(text: str) -> set[str]:
    """The names and numbers of an expression; a number beside a name only makes room."""
    words = set(_WORD.findall(text)) - {"self", "torch", "np"}
    return {word for word in words if not word.isdigit()} or words


def _half_cleared(file: File) -> Iterator[Finding]:
    """Functions that clear some of the attributes that a function beside them sets together."""
    kept = {name: _stored(function.node) for name, function in file.functions.items()}
    for name, function in file.functions.items():
        cleared = {place: node for place, node in kept[name].items() if _is_cleared(node)}
        if not any(word in name for word in _CLEARS) or not cleared:
            continue
        for other, stored in kept.items():
            owners = {place.rpartition(".")[0] for place in cleared}
            same = {place for place in stored if place.rpartition(".")[0] in owners}
            left = same - kept[name].keys()
            if other != name and cleared.keys() <= same and len(left) == 1 and not _clears(other):
                (place,) = left
                what = f"{name} does not clear {place}, which {other} sets with {', '.join(sorted(cleared))}"
                yield Finding(
                    kind="half-cleared",
                    owner=name,
                    subject=place,
                    what=what,
                    here=side(file, function.node, name),
                    there=side(file, stored[place], unparse(stored[place])),
                    incident="P",
                    why="the value of one step is taken for that of the next",
                    todo=f"clear {place} too",
                )


def _clears(name: str) -> bool:
    return any(word in name for word in _CLEARS)


def _is_cleared(node: ast.Assign) -> bool:
    return unparse(node.value) in EMPTY


def _stored(node: Function) -> dict[str, ast.Assign]:
    """The attributes of locals and parameters that a function sets."""
    found: dict[str, ast.Assign] = {}
    for inner in walk(node):
        for target in inner.targets if isinstance(inner, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and dotted(target) and isinstance(inner, ast.Assign):
                found[dotted(target)] = inner
    return found


def _finding(kind: str, method: Method, model: Method, name: str, what: str, at: ast.expr) -> Finding:
    return Finding(
        kind=kind,
        owner=method.owner.name,
        subject=f"{name} in {method.name}",
        what=what,
        here=side(method),
        there=side(model, at, cut(unparse(at), 100)),
        incident="P" if kind == "not-reset" else "A",
        why="what one step leaves the next one takes up"
        if kind == "not-reset"
        else "what is written there or read from it does not fit",
        todo="do as the class that is followed does, or waive it with the reason",
    )
