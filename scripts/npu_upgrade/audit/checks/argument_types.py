"""Arguments of another kind than their parameter is declared as: a tuple where a mapping is read by key.

Or of a class that has nothing of what the function asks its parameter for: each question has a default.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import audited_scopes
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function, landing, misfit, signature
from npu_upgrade.code.walk import dotted, string, walk
from npu_upgrade.ground.held import held
from npu_upgrade.program.callees import Resolver, resolver_of
from npu_upgrade.program.heirs import heirs
from npu_upgrade.program.members import members
from npu_upgrade.program.program import ClassSymbol, File, FunctionSymbol, Program, ValueSymbol
from npu_upgrade.program.scope import Callee, Scope
from npu_upgrade.threeway.signature_merge import alternatives

ABOUT = (
    "arguments of another kind (mapping, sequence, text, number) than their parameter is declared as, "
    "or of a class that has nothing of what it is asked for"
)

# What is read alike, by the names that hints use. A class that is not here tells nothing.
_KINDS = {
    **dict.fromkeys(("dict", "Dict", "Mapping", "MutableMapping", "defaultdict", "OrderedDict"), "a mapping"),
    **dict.fromkeys(("list", "List", "tuple", "Tuple", "Sequence", "deque", "set", "Set"), "a sequence"),
    **dict.fromkeys(("int", "float", "bool"), "a number"),
    **dict.fromkeys(("str", "bytes"), "text"),
}
_DISPLAYS = {
    **dict.fromkeys((ast.Dict, ast.DictComp), "a mapping"),
    **dict.fromkeys((ast.List, ast.ListComp, ast.Tuple), "a sequence"),
    ast.JoinedStr: "text",
}
_ASKS = {"getattr", "hasattr"}
_HOPS = 3
_DISTINCT = 12  # characters of a name that stands for one thing wherever it is defined
_FEW = 2


def check(world: World) -> Iterator[Finding]:
    resolver = resolver_of(world.program)
    for scope in audited_scopes(world, resolver):
        for call in resolver.body(scope.node).calls:
            for callee in resolver.callees(call, scope)[:1]:
                if not misfit(call, callee.node, bound=callee.bound):
                    yield from _judged(call, callee, scope, resolver)


def _judged(call: ast.Call, callee: Callee, scope: Scope, resolver: Resolver) -> Iterator[Finding]:
    for parameter, argument in landing(call, callee.node, bound=callee.bound):
        takes = _kinds(parameter.annotation, callee.file)
        given = _given(argument, scope, resolver) if takes else frozenset()
        if given and not given & takes:
            yield _finding(call, callee, scope, parameter, (argument, given, takes))
        elif isinstance(argument, ast.Attribute) and (names := _asked(callee, parameter.arg)):
            known = resolver.types.of(argument, scope) or frozenset()
            classes = [one for term in known for one in _with_heirs(term, resolver.program)]
            have = [members(one) if one else None for one in classes]
            if have and all(one is not None and not names & one for one in have):
                cls = " or ".join(sorted(term.name for term in known if isinstance(term, ClassSymbol)))
                yield _in_vain(call, callee, scope, parameter, (argument, cls, names))


def _with_heirs(term: object, program: Program) -> list[ClassSymbol | None]:
    """The classes that an object of this one may be of; None for what is no class of the trees."""
    if not isinstance(term, ClassSymbol):
        return [None]
    return [term, *(heir for package in program.trees for heir in heirs(term, program, package))]


def _asked(callee: Callee, name: str) -> frozenset[str]:
    """What a function asks a parameter for by ``getattr``, where it does nothing else with it."""
    return _asked_of(callee.file, callee.node, name)


@held
def _asked_of(file: File, function: Function, name: str, hops: int = _HOPS) -> frozenset[str]:
    """The same, also of functions that it hands the parameter on to."""
    names, uses = set[str](), 0
    for node in walk(function):
        uses -= isinstance(node, ast.Name) and node.id == name
        if not isinstance(node, ast.Call) or name not in map(dotted, node.args):
            continue
        other = file.resolve(node.func) if dotted(node.func) else None
        if dotted(node.func) in _ASKS and len(node.args) > 1 and dotted(node.args[0]) == name:
            names.add(string(node.args[1]))
            uses += 1
        elif isinstance(other, FunctionSymbol) and hops:
            landed = landing(node, other.node, bound=False)
            parameter = next((arg.arg for arg, value in landed if dotted(value) == name), "")
            names |= _asked_of(other.file, other.node, parameter, hops - 1) or {""}
            uses += 1
    return frozenset(names) if uses == 0 and "" not in names else frozenset()


def _given(value: ast.expr, scope: Scope, resolver: Resolver) -> frozenset[str]:
    """The kinds that a value may be of; empty where the trees do not tell."""
    if isinstance(value, ast.Name) and not isinstance(scope.node, ast.Module):
        bound = resolver.body(scope.node).value(value.id)
        return _given(bound, scope, resolver) if isinstance(bound, ast.Call) else frozenset()
    if kind := _DISPLAYS.get(type(value)):
        return frozenset({kind})
    if not isinstance(value, ast.Call):
        return frozenset()
    found = [_returned(one.node, one.file) for one in resolver.callees(value, scope) if not one.makes]
    if not found and isinstance(value.func, ast.Attribute) and len(value.func.attr) >= _DISTINCT:
        found = _of_every(resolver.program, value.func.attr)
    return frozenset.union(*found) if found and all(found) else frozenset()


def _returned(node: Function, file: File) -> frozenset[str]:
    plain = isinstance(node, ast.FunctionDef) and not any(
        isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(node)
    )
    return _kinds(node.returns, file) if plain else frozenset()


@held
def _of_every(program: Program, name: str) -> list[frozenset[str]]:
    """What each function of that name in vLLM is declared to return, where several say it."""
    start = re.compile(rf"^[ \t]+def {name}\(", re.MULTILINE)
    paths = [path for path in program.holding("vllm", name) if start.search(program.text(path))]
    files = [file for path in paths if (file := program.file(path))]
    hinted = [
        (node, file)
        for file in files
        for node in file.nodes
        if isinstance(node, Function) and node.name == name and node.returns
    ]
    return [_returned(node, file) for node, file in hinted] if len(hinted) >= _FEW else []


def _kinds(hint: ast.expr | None, file: File, hops: int = _HOPS) -> frozenset[str]:
    """The kinds that a hint names; empty where it names anything else."""
    found: set[str] = set()
    for part in alternatives(hint) if hint else []:
        if not isinstance(part, ast.expr):
            return frozenset()
        plain = part.value if isinstance(part, ast.Subscript) else part
        if isinstance(plain, ast.Constant) and plain.value is None:
            continue
        kind = _KINDS.get(dotted(plain).rpartition(".")[2])
        named = {kind} if kind else _alias(plain, file, hops)
        if not named:
            return frozenset()
        found |= named
    return frozenset(found)


def _alias(hint: ast.expr, file: File, hops: int) -> frozenset[str]:
    """The kinds of what a name of the trees is set to, as ``Tables: TypeAlias = dict[str, Table]``."""
    symbol = file.resolve(hint) if hops and isinstance(hint, (ast.Name, ast.Attribute)) else None
    value = getattr(symbol.node, "value", None) if isinstance(symbol, ValueSymbol) else None
    return _kinds(value, symbol.file, hops - 1) if value and isinstance(symbol, ValueSymbol) else frozenset()


def _in_vain(
    call: ast.Call,
    callee: Callee,
    scope: Scope,
    parameter: ast.arg,
    read: tuple[ast.expr, str, frozenset[str]],
) -> Finding:
    argument, cls, names = read
    asker = scope.name or "the module"
    func, asked = unparse(call.func), ", ".join(sorted(names))
    return Finding(
        kind="asked-in-vain",
        owner=scope.name,
        subject=f"{func}: {parameter.arg} is {unparse(argument)}",
        what=f"{asker} gives {func}() a {cls}, which has no {asked}",
        here=side(scope.file, call.lineno, unparse(call)),
        there=side(callee.file, callee.node.lineno, signature(callee.node)),
        incident="S",
        why="Nothing fails: what the function asks for is never there, so what it decides is off.",
        todo=f"Give {callee.name} the object that has {asked}.",
    )


def _finding(
    call: ast.Call,
    callee: Callee,
    scope: Scope,
    parameter: ast.arg,
    read: tuple[ast.expr, frozenset[str], frozenset[str]],
) -> Finding:
    argument, given, takes = read
    is_, asks = (" or ".join(sorted(kinds)) for kinds in (given, takes))
    func = unparse(call.func)
    hint = unparse(parameter.annotation) if parameter.annotation else ""
    return Finding(
        kind="argument",
        owner=scope.name,
        subject=f"{func}: {parameter.arg} is {asks}, {unparse(argument)} is {is_}",
        what=f"{scope.name or 'the module'} gives {func}() {is_} as {parameter.arg}, which is {asks}",
        here=side(scope.file, call.lineno, unparse(call)),
        there=side(callee.file, callee.node.lineno, f"{signature(callee.node)} with {parameter.arg}: {hint}"),
        incident="S",
        why="The call succeeds, and the function reads the value as what it is not.",
        todo=f"Give {callee.name} what it takes now.",
    )
