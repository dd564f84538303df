"""Signatures read from source: what changed, what a call or an override no longer fits."""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from npu_upgrade.code.portable import unparse
from npu_upgrade.code.walk import is_super, last_name
from npu_upgrade.ground.tables import cut

Function = ast.FunctionDef | ast.AsyncFunctionDef
_KINDS = {"property", "cached_property", "staticmethod", "classmethod"}
_LONG = 160


def places_of(args: ast.arguments) -> list[ast.arg]:
    """The parameters that can be given by place."""
    return [*args.posonlyargs, *args.args]


def named_of(args: ast.arguments) -> list[ast.arg]:
    """The parameters, less ``*args`` and ``**kwargs``."""
    return [*places_of(args), *args.kwonlyargs]


def passes_on(node: Function) -> bool:
    """Whether a method only calls the one above it, with all that it takes as it came."""
    body = node.body[ast.get_docstring(node, clean=False) is not None :]
    call = getattr(body[0], "value", None) if len(body) == 1 else None
    if not isinstance(call, ast.Call) or node.decorator_list or not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr != node.name or not is_super(call.func.value):
        return False
    given = [ast.unparse(one) for one in call.args]
    named = {one.arg: ast.unparse(one.value) for one in call.keywords}  # None: what ** spreads
    given += [value for name, value in named.items() if name in (None, value)]
    args = node.args
    taken = [one.arg for one in places_of(args)[1:]] + ([f"*{args.vararg.arg}"] if args.vararg else [])
    taken += [one.arg for one in args.kwonlyargs] + ([args.kwarg.arg] if args.kwarg else [])
    return given == taken and len(given) == len(call.args) + len(call.keywords)


def every_parameter(args: ast.arguments) -> list[ast.arg]:
    """The parameters, with ``*args`` and ``**kwargs``."""
    return [*named_of(args), *(arg for arg in (args.vararg, args.kwarg) if arg)]


def signature(node: Function) -> str:
    """The name with its parameters and defaults, less annotations: ``f(self, a, b=None)``."""
    arguments = copy.deepcopy(node.args)
    for arg in every_parameter(arguments):
        arg.annotation = None
    kinds = [f"@{kind} " for kind in map(last_name, node.decorator_list) if kind in _KINDS]
    word = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{''.join(kinds)}{word}{node.name}({unparse(arguments)})"


def signature_change(before: Function, after: Function) -> str:
    """Both signatures, or only the parameters that differ where the signatures are long."""
    old, new = signature(before), signature(after)
    if len(old) + len(new) <= _LONG:
        return f"{old} -> {new}"
    had, has = (_parameters(node) for node in (before, after))
    words = {"added": [p for p in has if p not in had], "removed": [p for p in had if p not in has]}
    parts = [f"{word} {', '.join(names)}" for word, names in words.items() if names]
    return f"{after.name}(...): {'; '.join(parts)}" if parts else f"{old} -> {new}"


@functools.lru_cache(maxsize=16384)  # a node is its own key; the same classes are compared many times
def plain_text(node: ast.stmt) -> str:
    """The source of a definition without comments, layout and docstrings, to compare by."""
    node = copy.deepcopy(node)
    for inner in ast.walk(node):
        body = inner.body if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else []
        first = body[0].value if body and isinstance(body[0], ast.Expr) else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and len(body) > 1:
            del body[0]
    return unparse(node)


def not_taken(override: Function, upstream: Function) -> list[str]:
    """The parameters of ``upstream`` that a caller may give and ``override`` does not take.

    Ends with ``NAME (has no default)`` for those that the override asks for and upstream
    does not have.
    """
    own, args = override.args, upstream.args
    takes = {arg.arg for arg in named_of(own)}
    missing = []
    for position, arg in enumerate(places_of(args)):
        fits_place = own.vararg is not None or position < len(places_of(own))
        fits_name = arg.arg in takes or own.kwarg is not None or position == 0
        if not (fits_place and fits_name):
            missing.append(arg.arg)
    missing += [arg.arg for arg in args.kwonlyargs if arg.arg not in takes and own.kwarg is None]
    given = {arg.arg for arg in every_parameter(args)}
    asked = [name for name in _required(own) if name not in given][_common_places(own, args) :]
    return missing + [f"{name} (has no default)" for name in asked]


def displaced(own: Function, other: Function) -> list[str]:
    """The parameters by place that both have and that do not stand in the same order."""
    ours, theirs = ([arg.arg for arg in places_of(node.args)] for node in (own, other))
    mine, others = [name for name in ours if name in theirs], [name for name in theirs if name in ours]
    return [name for name, one in zip(mine, others, strict=True) if name != one]


def misfit(call: ast.Call, node: Function, *, bound: bool) -> str:
    """Why ``call`` does not fit the signature, empty when it does or cannot be told.

    ``bound``: the first parameter is given by the object it is called on. Starred arguments
    may give nothing or anything; what stands beside them, and the keys of an unpacked dict
    display, are judged all the same.
    """
    args, places = node.args, places_of(node.args)[int(bound) :]
    given = sum(not isinstance(arg, ast.Starred) for arg in call.args)
    if given > len(places) and args.vararg is None:
        return f"takes {len(places)} positional arguments, gets {given}"
    names = given_names(call)
    named = [*names.sure, *names.maybe]
    by_place_only = {arg.arg for arg in args.posonlyargs}
    takes = {arg.arg for arg in [*places, *args.kwonlyargs]} - by_place_only
    unknown = [name for name in dict.fromkeys(named) if name not in takes]
    if unknown and args.kwarg is None:
        return f"has no parameter {', '.join(unknown)}"
    filled = {arg.arg for arg in places[:given]}
    twice = [name for name in named if name in filled and name in takes]
    twice += [name for name in dict.fromkeys(names.sure) if names.sure.count(name) > 1 and name not in twice]
    if twice:
        return f"gets {', '.join(twice)} twice"
    if given < len(call.args) or names.more:
        return ""
    filled |= takes & set(named)
    expected = takes | {arg.arg for arg in places}
    lacking = [name for name in _required(args) if name in expected and name not in filled]
    return f"needs {', '.join(lacking)}" if lacking else ""


def misfits(calls: Sequence[ast.Call], before: Function, after: Function, bound: bool) -> list[str]:
    """The calls that fitted the old signature and do not fit the new one, each with the reason."""
    found = [
        f"{cut(unparse(call), 100)}: {reason}"
        for call in calls
        if (reason := misfit(call, after, bound=bound)) and not misfit(call, before, bound=bound)
    ]
    return list(dict.fromkeys(found))


def landing(call: ast.Call, node: Function, *, bound: bool) -> list[tuple[ast.arg, ast.expr]]:
    """The values of a call with the parameters that they surely land on (``bound`` as in ``misfit``)."""
    args = node.args
    by_place = itertools.takewhile(lambda value: not isinstance(value, ast.Starred), call.args)
    found = list(zip(places_of(args)[int(bound) :], by_place, strict=False))
    named = {arg.arg: arg for arg in [*args.args, *args.kwonlyargs]}
    return found + [(named[k.arg], k.value) for k in call.keywords if k.arg in named]


def is_spread(call: ast.Call) -> bool:
    """Whether a call unpacks arguments, so that the source does not tell what it gives."""
    return any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)


def is_bound(node: Function) -> bool:
    """Whether a method gets the object or class as its first argument."""
    return "staticmethod" not in map(last_name, node.decorator_list)


def defaults_of(args: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    """The parameters, less ``*args`` and ``**kwargs``, each with its default."""
    places = places_of(args)
    defaults = [None] * (len(places) - len(args.defaults)) + list(args.defaults)
    return [*zip(places, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]


def _parameters(node: Function) -> list[str]:
    """The parameters with their defaults."""
    args = node.args
    found = [arg.arg + (f"={unparse(default)}" if default else "") for arg, default in defaults_of(args)]
    return found + [f"{stars}{arg.arg}" for stars, arg in (("*", args.vararg), ("**", args.kwarg)) if arg]


def _required(args: ast.arguments) -> list[str]:
    return [arg.arg for arg, default in defaults_of(args) if default is None]


def _common_places(own: ast.arguments, args: ast.arguments) -> int:
    """1 when the override only calls its first parameter otherwise (``self``, ``worker``)."""
    first = [places[0].arg for places in (places_of(own), places_of(args)) if places]
    return int(len(first) == 2 and first[0] != first[1] and first[0] in _required(own))


# What a call asks before it gives a keyword that only some callees take.
_PROVIDED_FOR = re.compile(r"version|signature|param|hasattr|getattr|support|_has_|^has_", re.IGNORECASE)


@dataclass
class GivenNames:
    """``sure`` are given by every call, one name as often as it is given; ``maybe`` only by some.

    ``more``: there may be others, of which the source does not tell.
    """

    sure: list[str] = field(default_factory=list)
    maybe: list[str] = field(default_factory=list)
    more: bool = False

    def add(self, other: GivenNames) -> None:
        self.sure += other.sure
        self.maybe += other.maybe
        self.more |= other.more


def given_names(call: ast.Call) -> GivenNames:
    """The names that the call gives its callee."""
    found = GivenNames()
    for keyword in call.keywords:
        found.add(GivenNames([keyword.arg]) if keyword.arg else _unpacked(keyword.value))
    return found


def _unpacked(value: ast.expr) -> GivenNames:
    if isinstance(value, ast.Dict):
        return _display(value)
    if isinstance(value, ast.IfExp):
        return _either(value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
        found = given_names(value)
        found.sure = list(dict.fromkeys(found.sure))
        found.more |= bool(value.args)
        return found
    return GivenNames(more=True)


def _display(node: ast.Dict) -> GivenNames:
    """A key that stands twice counts once: the later value replaces the earlier."""
    found = GivenNames()
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            found.add(_unpacked(value))
        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.sure.append(key.value)
        else:
            found.more = True
    found.sure = list(dict.fromkeys(found.sure))
    return found


def _either(node: ast.IfExp) -> GivenNames:
    """What both branches give is sure; nothing is, where the condition asks what the callee takes."""
    if _PROVIDED_FOR.search(ast.unparse(node.test)):
        return GivenNames(more=True)
    one, other = _unpacked(node.body), _unpacked(node.orelse)
    sure = [name for name in one.sure if name in other.sure]
    names = dict.fromkeys([*one.sure, *other.sure, *one.maybe, *other.maybe])
    return GivenNames(sure, [name for name in names if name not in sure], one.more or other.more)
