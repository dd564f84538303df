"""The names that hunks use, checked as a set: a hunk may define what another one reads."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import imports_in
from npu_upgrade.code.statements import nodes_of
from npu_upgrade.code.uses import defines, free_names
from npu_upgrade.port.hunks import Hunk
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.port.sides import statements
from npu_upgrade.program.absent import missing_import
from npu_upgrade.program.program import ClassSymbol


@dataclass
class Needs:
    """What a hunk cannot do without: other hunks by id, and names that nothing provides."""

    hunks: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)


@dataclass
class Ranked:
    """A hunk with its tier (1 is the top), how much of its surroundings the NPU side has, and why.

    ``held`` tells that the NPU side has the hunk itself, ``callers`` that it has a place and only other code
    does not agree with it.
    """

    hunk: Hunk
    tier: int = 1
    followed: float = 1.0
    needs: Needs = field(default_factory=Needs)
    reasons: list[str] = field(default_factory=list)
    held: bool = False
    callers: bool = False

    def lower(self, tier: int, reason: str) -> None:
        """Move it down to ``tier``, unless it is there already, and say why."""
        self.tier = max(self.tier, tier)
        if reason not in self.reasons:
            self.reasons.append(reason)


@dataclass(frozen=True)
class Uses:
    """Attributes of ``self`` (or of the runner's class, by its name) and local names that a hunk uses."""

    reads: frozenset[str]
    binds: frozenset[str]
    names: frozenset[str]
    locals: frozenset[str]


def find_needs(hunks: Sequence[Hunk], npu: NpuSide) -> dict[str, Needs]:
    """The needs of every hunk, by its id."""
    found: dict[str, Needs] = {}
    attributes = {runner.kind: npu.attributes(runner) for runner in {h.runner for h in hunks}}
    for hunk in hunks:
        needs = found[hunk.id] = Needs()
        used = uses(hunk)
        for name in sorted(used.reads - attributes[hunk.runner.kind] - used.binds):
            _add(
                needs,
                f"self.{name}",
                [h for h in hunks if h is not hunk and _gives_attribute(h, hunk, name, npu)],
            )
        readable = npu.reads_names(hunk.runner, hunk.unit)
        for name in sorted(used.names - readable - used.locals):
            givers = [h for h in hunks if h is not hunk and _same_unit(h, hunk) and name in uses(h).locals]
            if givers or not npu.importable(hunk.runner, name):
                _add(needs, name, givers)
        needs.unresolved += _imports_in_vain(hunk, npu)
        if hunk.kind == "base":
            for name in sorted(_initialised(hunk, npu)):
                callers = [
                    h
                    for h in hunks
                    if h.runner == hunk.runner and h.unit.endswith(".__init__") and name in uses(h).reads
                ]
                _add(needs, f"the call of self.{name} in __init__", callers)
    return found


def _imports_in_vain(hunk: Hunk, npu: NpuSide) -> list[str]:
    """What the imports inside a hunk ask for that is not there, in the words of the NPU side."""
    nodes = (node for key in hunk.added for node in nodes_of(key))
    imports = (node for node in nodes if isinstance(node, ast.ImportFrom) and not node.level)
    items = (item for node in imports for item in imports_in(node))
    return [f"{item.name} of {item.module}" for item in items if missing_import(npu.program, item)]


def _initialised(base: Hunk, npu: NpuSide) -> set[str]:
    """What of a base class the GPU runner's ``__init__`` reads and the NPU runner's does not."""
    return _read_in("__init__", base, npu)


def used_besides(base: Hunk, hunks: Sequence[Hunk], npu: NpuSide) -> set[str]:
    """What of a base class the GPU runner's methods read, and neither the NPU runner's nor any hunk does.

    The GPU side has used it for longer than the list goes back: with the base alone half of it would come.
    """
    runner = base.runner
    units = parse_module(npu.gpu_texts[runner.gpu_path]).units.values()
    methods = {one.name for one in units if one.owner == runner.gpu_class} - {"__init__"}
    read = set().union(*(_read_in(name, base, npu) for name in methods))
    return read.difference(*(uses(hunk).reads for hunk in hunks if hunk.runner == runner))


def _read_in(method: str, base: Hunk, npu: NpuSide) -> set[str]:
    runner = base.runner
    gpu = parse_module(npu.gpu_texts[runner.gpu_path]).units.get(f"{runner.gpu_class}.{method}")
    own = npu.modules[runner.kind].units.get(f"{runner.class_name}.{method}")
    there, here = (uses(Hunk("change", runner, "", (), tuple(statements(unit)))).reads for unit in (gpu, own))
    return provided(base, npu) & (there - here)


def provided(base: Hunk, npu: NpuSide) -> set[str]:
    """The attributes that come with a base class."""
    return {name for cls in _base_classes(base, npu) for name in (*cls.methods, *cls.fields, *cls.assigned)}


def closure(ids: Iterable[str], needs: dict[str, Needs]) -> list[str]:
    """The hunks and all that they need, the needed ones first."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for other in needs[name].hunks:
                visit(other)
            order.append(name)

    for name in ids:
        visit(name)
    return order


@lru_cache(maxsize=4096)
def uses(hunk: Hunk) -> Uses:
    """What the statements that come with a hunk read and bind."""
    if hunk.kind == "base":
        bases = frozenset({hunk.new[0].key.partition(".")[0]})
        return Uses(frozenset(), frozenset(), bases, frozenset())
    new = [s for s in hunk.new if s.key in hunk.added]
    nodes = [node for statement in new for node in nodes_of(statement.key)]
    holders = {"self", "cls", hunk.runner.class_name, hunk.runner.gpu_class}
    on_self = [
        n
        for n in nodes
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id in holders
    ]
    binds = {n.attr for n in on_self if isinstance(n.ctx, ast.Store)}
    binds |= {hunk.unit.rpartition(".")[2]} if hunk.kind == "method" else set()
    return Uses(
        frozenset(n.attr for n in on_self if isinstance(n.ctx, ast.Load)),
        frozenset(binds),
        frozenset(free_names(new)),
        frozenset(defines(s.key for s in new)),
    )


def _add(needs: Needs, name: str, givers: Sequence[Hunk]) -> None:
    if not givers:
        needs.unresolved.append(name)
    elif not any(giver.id in needs.hunks for giver in givers):
        needs.hunks.append(min(givers, key=lambda h: h.kind != "method").id)


def _gives_attribute(giver: Hunk, reader: Hunk, name: str, npu: NpuSide) -> bool:
    if giver.kind == "base" and giver.runner == reader.runner:
        return name in provided(giver, npu)
    return giver.runner.kind in (reader.runner.kind, "base") and name in uses(giver).binds


def _base_classes(hunk: Hunk, npu: NpuSide) -> list[ClassSymbol]:
    gpu = npu.program.find_class(hunk.runner.gpu_path, hunk.runner.gpu_class)
    wanted = uses(hunk).names
    return [cls for base in (gpu.mro if gpu else ()) if base.name in wanted for cls in base.mro]


def _same_unit(one: Hunk, other: Hunk) -> bool:
    return one.runner == other.runner and one.unit == other.unit
