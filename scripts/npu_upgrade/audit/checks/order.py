"""Arguments and results that stand in the place of one another: their own names tell where they belong."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence, Set

from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.operator_schemas import OPERATORS
from npu_upgrade.audit.overrides import audited_scopes
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function, displaced, named_of, places_of, signature
from npu_upgrade.code.walk import dotted, last_name, walk
from npu_upgrade.program.callees import Resolver, resolver_of
from npu_upgrade.program.places import files_with
from npu_upgrade.program.program import File, Method
from npu_upgrade.program.scope import Callee, Scope

_FORMS = 2  # others whose parameters say what callers give
_FEWEST = 2  # others that take a result by the same name, all from one place
ABOUT = "arguments and results in each other's place, or taken otherwise than everywhere else"


def check(world: World) -> Iterator[Finding]:
    resolver = resolver_of(world.program)
    told: set[int] = set()
    taken: dict[str, list[tuple[Scope, ast.Tuple | ast.List, ast.Call]]] = {}
    for scope in audited_scopes(world, resolver):
        body = resolver.body(scope.node)
        for call in body.calls:
            found = [_arguments(call, callee) for callee in resolver.callees(call, scope)]
            if found and all(found) and found[0] and id(call) not in told:
                told.add(id(call))
                yield _finding("argument-order", scope, call, call, found[0], resolver)
        for target, value in body.unpacked:
            if not isinstance(value, ast.Call) or id(value) in told:
                continue
            callees = resolver.callees(value, scope)
            if callees or _is_operator(value):
                taken.setdefault(last_name(value.func), []).append((scope, target, value))
            found = [_results(target, callee, resolver) for callee in callees]
            if found and all(found) and found[0]:
                told.add(id(value))
                yield _finding("result-order", scope, target, value, found[0], resolver)

    yield from _of_devices(world)
    for name, mine in taken.items():
        others = [(file, node, _names(node.targets[0])) for file, node in _takers(world, name)]
        for scope, target, value in mine:
            # What an operator returns goes by what it is told to.
            alike = (one for one in others if one[1].value is not value)
            known = [one for one in alike if not _is_operator(value) or _told(one[1].value) == _told(value)]
            if id(value) not in told and (
                found := _misplaced(_names(target), [names for *_, names in known])
            ):
                told.add(id(value))
                name, place, usual = found
                file, node = next((f, n) for f, n, names in known if names[usual : usual + 1] == [name])
                yield _by_use(scope, target, value, (name, place, usual), side(file, node, unparse(node)))


def _of_devices(world: World) -> Iterator[Finding]:
    """The device's form of a method that returns by place otherwise than the forms for other devices."""
    package, end = world.side.project.package, f"_{world.side.project.device}"
    paths = sorted({*world.side.paths, *world.program.holding(package, end)}) if world.of_omni else ()
    form = re.compile(rf"def \w+{end}\b")
    files = filter(None, (world.program.file(p) for p in paths if form.search(world.program.text(p))))
    for cls in (cls for file in files for cls in file.classes.values()):
        for method in (one for name, one in cls.methods.items() if name.endswith(end) and one.owner is cls):
            stem = method.name.removesuffix(end)
            alike = (one for one in cls.methods.values() if one.name.startswith(f"{stem}_"))
            others = [one for one in alike if one is not method]
            yield from _of_form(method, stem, others)
            yield from _form_takes(method, stem, others)


def _form_takes(method: Method, stem: str, others: Sequence[Method]) -> Iterator[Finding]:
    """Parameters that one form takes in another order than all other forms, or not at all."""
    own = method.node.args
    lacks = [_named(other.node) - _named(method.node) for other in others]
    closed = len(lacks) >= _FORMS and own.vararg is None and own.kwarg is None
    if missing := ", ".join(sorted(set.intersection(*lacks))) if closed else "":
        yield Finding(
            kind="parameter-of-forms",
            owner=method.qualname,
            subject=f"{stem}: {missing}",
            what=f"{method.qualname} does not take {missing}, as all other forms of {stem} do",
            here=side(method, text=signature(method.node)),
            there=side(others[0], text=signature(others[0].node)),
            incident="S",
            why="callers give it whichever form runs: TypeError on this device only",
            todo=f"take {missing}, and do what the other forms do with it",
        )
    moved = [displaced(method.node, other.node) for other in others]
    if moved and all(moved):
        names = ", ".join(moved[0])
        yield Finding(
            kind="parameter-order",
            owner=method.qualname,
            subject=f"{stem}: {names}",
            what=f"{method.qualname} takes {names} in another order than {others[0].name}",
            here=side(method, text=signature(method.node)),
            there=side(others[0], text=signature(others[0].node)),
            incident="S",
            why="callers give them by place, so that nothing fails and one is taken for the other",
            todo="take them in the order of the other forms",
        )


def _named(node: Function) -> set[str]:
    return {arg.arg for arg in named_of(node.args)}


def _of_form(method: Method, stem: str, others: Sequence[Method]) -> Iterator[Finding]:
    """What one form returns in another place than all other forms that return it by place."""
    theirs = [(one, names) for one in others for _, names in _returns(one.node)]
    known = [names for _, names in theirs]
    for node, names in _returns(method.node):
        found = _misplaced([_in_words_of(name, known) for name in names], known, fewest=1)
        if not found:
            continue
        word, place, usual = found
        other = next(one for one, those in theirs if those[usual : usual + 1] == [word])
        yield Finding(
            kind="result-place",
            owner=method.qualname,
            subject=f"{stem}: {word}",
            what=f"{method.qualname} returns {word} as {place + 1}, {other.name} as {usual + 1}",
            here=side(method, node.lineno, unparse(node)),
            there=side(other, text=signature(other.node)),
            incident="S",
            why="the count fits, so that nothing fails and one result is taken for another",
            todo="return what the other forms return, in their order",
        )


def _in_words_of(name: str, others: Sequence[Sequence[str]]) -> str:
    """The one name of the others whose words a name has, as ``residual`` of ``new_residual``; else itself."""
    words = set(name.split("_"))
    known = {one for other in others for one in other if one and {*one.split("_")} <= words}
    return known.pop() if len(known) == 1 else name


def _returns(node: Function) -> list[tuple[ast.Return, list[str]]]:
    """The returns of tuples, those on a condition too, with the names of their elements."""
    returns = [one for one in walk(node) if isinstance(one, ast.Return) and one.value]
    values = [
        (one, value)
        for one in returns
        for value in ([one.value.body, one.value.orelse] if isinstance(one.value, ast.IfExp) else [one.value])
    ]
    return [(one, _names(value)) for one, value in values if isinstance(value, ast.Tuple)]


def _is_operator(call: ast.Call) -> bool:
    return dotted(call.func).startswith(OPERATORS)


def _told(value: ast.expr) -> set[str | None]:
    return {keyword.arg for keyword in value.keywords} if isinstance(value, ast.Call) else set()


def _takers(world: World, name: str) -> Iterator[tuple[File, ast.Assign]]:
    """The statements of all trees that take results of a callee of that name apart."""
    unpacks = re.compile(rf"[,)]\s*(?:\w+\s*)?=\s*(?:await\s+)?[\w.]*\b{name}\(")
    for package in world.program.trees:
        for path, text in files_with(world.program, package, f"{name}("):
            file = world.program.file(path) if unpacks.search(text) else None
            for node in file.nodes if file else ():
                called = node.value if isinstance(node, ast.Assign) else None
                if file and isinstance(called, ast.Call) and last_name(called.func) == name:
                    assert isinstance(node, ast.Assign)
                    yield file, node


def _names(target: ast.expr) -> list[str]:
    return [last_name(item) for item in target.elts] if isinstance(target, (ast.Tuple, ast.List)) else []


def _misplaced(
    names: Sequence[str], others: Sequence[Sequence[str]], fewest: int = _FEWEST
) -> tuple[str, int, int] | None:
    """The first name taken from a place where no other has it, with that place and the one that all take it
    from who take as many results."""
    others = [other for other in others if len(other) == len(names)]
    for place, name in enumerate(names):
        places = [other.index(name) for other in others if name in other]
        if name.strip("_") and len(places) >= fewest and len(set(places)) == 1 and places[0] != place:
            return name, place, places[0]
    return None


def _by_use(scope: Scope, at: ast.expr, call: ast.Call, found: tuple[str, int, int], there: Side) -> Finding:
    name, place, usual = found
    text = unparse(call.func)
    return Finding(
        kind="result-place",
        owner=scope.name,
        subject=f"{text}: {name}",
        what=f"{scope.name} takes {name} as result {place + 1} of {text}(), and all others as {usual + 1}",
        here=side(scope.file, at, unparse(call)),
        there=there,
        incident="S",
        why="the count fits, so that nothing fails there and one result is taken for another",
        todo=f"take {name} from where the others take it",
    )


def _arguments(call: ast.Call, callee: Callee) -> tuple[str, str] | None:
    """Two arguments each called as the other's parameter."""
    node = _named_constructor(callee) or callee.node
    places = places_of(node.args)[int(callee.bound) :]
    if any(isinstance(arg, ast.Starred) for arg in call.args[: len(places)]):
        return None
    given = [(arg.arg, last_name(value)) for arg, value in zip(places, call.args, strict=False)]
    by_place = len(given)
    given += [(keyword.arg, last_name(keyword.value)) for keyword in call.keywords if keyword.arg]
    return _displaced(given, {arg.arg for arg in named_of(node.args)}, by_place)


def _named_constructor(callee: Callee) -> Function | None:
    """The nearest constructor that names its parameters, below those that only pass all on."""
    if not callee.makes or places_of(callee.node.args)[1:] or not callee.node.args.vararg:
        return None
    found = (cls.methods["__init__"].node for cls in callee.makes.mro if "__init__" in cls.methods)
    return next((node for node in found if places_of(node.args)[1:]), None)


def _results(target: ast.Tuple | ast.List, callee: Callee, resolver: Resolver) -> tuple[str, str] | None:
    """Two names each taken from the place where every ``return`` has the other."""
    names = [last_name(item) for item in target.elts]
    values = [item.value for item in resolver.body(callee.node).returns]
    tuples = [value for value in values if isinstance(value, ast.Tuple) and len(value.elts) == len(names)]
    pairs = [list(zip(map(last_name, value.elts), names, strict=True)) for value in tuples]
    found = [_displaced(given, {place for place, _ in given}, len(given)) for given in pairs]
    return found[0] if found and len(tuples) == len(values) and all(found) else None


def _displaced(given: Sequence[tuple[str, str]], places: Set[str], by_place: int) -> tuple[str, str] | None:
    """The first two places whose values bear the names of others, which have not their own.

    ``given`` are pairs of a place's name and what is put there, the first ``by_place`` of them without
    naming the place; where that is named, only two in each other's place count.
    """
    held = dict(given)
    away = {
        value: place
        for number, (place, value) in enumerate(given)
        if place and value != place and value in places and held.get(value) != value
        if number < by_place or held.get(value) == place
    }
    found = list(away.values())
    return (found[0], found[1]) if len(found) > 1 else None


def _finding(
    kind: str, scope: Scope, at: ast.expr, call: ast.Call, names: tuple[str, str], resolver: Resolver
) -> Finding:
    callee = resolver.callees(call, scope)[0]
    text, both = unparse(call.func), " and ".join(names)
    verb = "gives" if kind == "argument-order" else "takes"
    return Finding(
        kind=kind,
        owner=scope.name,
        subject=f"{text}: {both}",
        what=f"{scope.name or 'the module'} {verb} {both} of {text}() in the place of one another",
        here=side(scope.file, at, unparse(call)),
        there=side(callee.file, callee.node, signature(callee.node)),
        incident="S",
        why="the count fits, so that nothing fails there and each is taken for the other",
        todo=f"{verb.removesuffix('s')} them in the order of {callee.name}",
    )
