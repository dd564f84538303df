"""Where ours calls something else than upstream does: what upstream's callee does besides."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import dedent

from npu_upgrade.code.module import Module, Unit, parse_module
from npu_upgrade.code.signatures import Function, defaults_of, landing, places_of
from npu_upgrade.code.statements import nodes_of, statements_of
from npu_upgrade.code.uses import reads
from npu_upgrade.code.walk import dotted
from npu_upgrade.lineage.downstream import Upstream, read_runner
from npu_upgrade.sources.tree import SourceTree
from npu_upgrade.threeway.pieces import Flag

Calls = dict[str, list[ast.Call]]
"""The calls of methods of ``self``, by name."""
_ON_SELF = re.compile(r"self\.(\w+)")
_CALLED = re.compile(r"\bself\.(\w+)\(")


def with_callees(
    flags: Iterable[Flag], units: Mapping[str, Unit], base: SourceTree | None, upstream: Upstream
) -> tuple[Flag, ...]:
    """The flags; of a call that ours replaced with what upstream's callee does besides, and how to have it.

    ``units`` are those of the target's runner file. Raises :class:`UpgradeError` when that of ``base`` cannot
    be read.
    """
    found = tuple(flags)
    if all(flag.kind != "callee" for flag in found):
        return found
    before = read_runner(base, upstream.path).units if base and base.exists(upstream.path) else {}
    return tuple(
        replace(flag, reason=flag.reason + _besides(flag, units, before, upstream))
        if flag.kind == "callee"
        else flag
        for flag in found
    )


def _besides(flag: Flag, units: Mapping[str, Unit], before: Mapping[str, Unit], upstream: Upstream) -> str:
    for name in _CALLED.findall(flag.theirs):
        qualname = f"{upstream.class_name}.{name}"
        unit, old = units.get(qualname), before.get(qualname)
        others = _others(unit, flag.ours) if unit else []
        if unit and others:
            waits = any("graph_params" in other for other in others)
            as_before = old is not None and {*others} <= {*_CALLED.findall(old.source)}
            ours, theirs = map(_calls_on_self, (flag.ours, flag.theirs))
            through = _past(ours, theirs.get(name, []), unit, upstream.class_name)
            return (
                f"; upstream's {name} ({upstream.path}:{unit.start + 1}) calls {_listed(others)} besides"
                + (": a graph that is replayed waits for its parameters, without an end" if waits else "")
                + (", as it did before: no gap of this upgrade's" if as_before else "")
                + (f"; to have that too, `with` and replace: {json.dumps(through)}" if through else "")
            )
    return ""


def _others(unit: Unit, ours: str) -> list[str]:
    """What a method of upstream's calls that the text of ours does not."""
    return [
        one for one in dict.fromkeys(_CALLED.findall(unit.source)) if one != unit.name and one not in ours
    ]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"self.{name}()" for name in names)


def _past(ours: Calls, theirs: Sequence[ast.Call], unit: Unit, class_name: str) -> dict[str, str]:
    """What makes ours call upstream's own method ``unit``, past any override: the text before -> after.

    ``theirs`` are upstream's calls of it. Nothing where that would not surely call the same with the same.
    """
    method = next(iter(ast.parse(dedent(unit.source)).body), None)
    called = [one for one in ours if re.search(rf"\bself\.{one}\b", unit.source)]
    if not isinstance(method, Function) or len(theirs) != 1 or len(called) != 1 or len(ours[called[0]]) != 1:
        return {}
    call, args = ours[called[0]][0], method.args
    given = {one.arg for one in call.keywords}
    known = {parameter.arg for parameter, _ in defaults_of(args)}
    if call.args or not given - {None} <= known or (None in given and not args.kwarg):
        return {}
    values = {one.arg: ast.unparse(value) for one, value in landing(theirs[0], method, bound=True)}
    myself = {one.arg for one in places_of(args)[:1]}
    missing = [one.arg for one, default in defaults_of(args) if default is None]
    missing = [one for one in missing if one not in given | myself]
    if not values.keys() >= {*missing}:
        return {}
    first = "".join(f", {one}={values[one]}" for one in missing)
    return {f"self.{called[0]}(": f"{class_name}.{unit.name}(self{first}, "}


def unlike_upstream(
    texts: Mapping[str, str], target: Module, upstream: Upstream, before: Module | None = None
) -> list[str]:
    """What runner files of ours (path -> text) call otherwise than upstream's does, in a sentence each.

    A copy that calls what upstream's own method calls, and not the method, misses what that does besides. A
    method of ours alone that leaves out what upstream gives the same method may get another answer of it:
    first of all by what has another part in it since ``before``, the runner file that ours was copied from.
    """
    own = [unit for unit in target.units.values() if unit.owner == upstream.class_name]
    methods = {unit.name: unit for unit in own}
    called = {name: _calls_on_self(unit.source) for name, unit in methods.items()}
    old = before.units if before else {}
    found: list[str] = []
    for path, text in texts.items():
        for unit in parse_module(text).units.values():
            if not unit.owner:
                continue
            calls, place = _calls_on_self(unit.source), f"{unit.qualname} ({path}:{unit.start + 1})"
            if unit.name not in methods:
                found += [f"{place} {one}" for one in _leaves_out(calls, called, methods, old)]
                continue
            source = _source_of(upstream, path, texts)
            more = f" (import {upstream.class_name} from {source} there)" if source else ""
            told = _goes_past(unit, calls, called[unit.name], methods)
            found += [f"{place} {one}{more}" for one in told]
    return found


def _source_of(upstream: Upstream, path: str, texts: Mapping[str, str]) -> str:
    """Where a runner file is to import upstream's class from; empty where it has it.

    A file of ours that it imports from, if that has the class: which one that is may depend on the device.
    """
    has = re.compile(rf"\b{upstream.class_name}\b")
    if has.search(texts[path]):
        return ""
    modules = {other: other.removesuffix(".py").replace("/", ".") for other in texts}
    ours = (
        modules[other]
        for other, text in texts.items()
        if has.search(text) and re.search(rf"\bfrom {re.escape(modules[other])} import\b", texts[path])
    )
    return next(ours, upstream.module)


def _goes_past(unit: Unit, calls: Calls, theirs: Calls, methods: Mapping[str, Unit]) -> Iterator[str]:
    """Where a copy calls what a method of upstream's calls, and upstream's own text calls that method."""
    for name, asked in theirs.items():
        if name not in methods or re.search(rf"\.{name}\(", unit.source):
            continue
        others = _others(methods[name], unit.source)
        past = _past(calls, asked, methods[name], methods[name].owner) if others else {}
        if past:
            yield (
                f"calls {next(iter(past))}...) where upstream calls self.{name}(), which calls "
                f"{_listed(others)} besides; to have that too, replace: {json.dumps(past)}"
            )


def _leaves_out(
    calls: Calls, called: Mapping[str, Calls], methods: Mapping[str, Unit], before: Mapping[str, Unit]
) -> Iterator[str]:
    """What upstream's methods (name -> their calls) give a method that ours calls without it."""
    for name, asked in calls.items():
        if name not in called:
            continue
        given = {keyword.arg for call in asked for keyword in call.keywords}
        more: dict[str, list[str]] = {}
        for caller, theirs in called.items():
            for call in theirs.get(name, ()):
                rest = [one for one in call.keywords if one.arg and one.arg not in given]
                more.setdefault(caller, []).extend(str(one.arg) for one in rest)
        told = "; ".join(f"{caller} gives {', '.join(rest)}" for caller, rest in more.items() if rest)
        if told and None not in given:
            since = _decides_now(methods[name], before.get(methods[name].qualname))
            now = sorted(since.intersection(one for rest in more.values() for one in rest))
            which = f"; what it makes of {', '.join(now)} has changed" if now else ""
            yield f"calls self.{name}(), to which upstream's {told} besides{which}"


def _decides_now(unit: Unit, old: Unit | None) -> set[str]:
    """The names that changed statements of a method read; none where it did not change, or is new."""
    if old is None or old.source == unit.source:
        return set()
    now, then = ({one.key for one in statements_of(dedent(each.source))} for each in (unit, old))
    return set(reads([key for key in now ^ then if not key.startswith(("def ", "async def "))]))


def _calls_on_self(text: str) -> Calls:
    """Those of a piece of a method; none where it cannot be split into statements."""
    found: Calls = {}
    try:
        parts = [one.key for one in statements_of(dedent(text))]
    except SyntaxError:
        return found
    for node in (node for part in parts for node in nodes_of(part)):
        if isinstance(node, ast.Call) and (on_self := _ON_SELF.fullmatch(dotted(node.func))):
            found.setdefault(on_self[1], []).append(node)
    return found
