"""What of a downstream hangs on one upstream, and how upstream's text of each unit is read."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from npu_upgrade.code.outline import outline
from npu_upgrade.code.signatures import signature
from npu_upgrade.ground.files import sha256
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.lineage.origins import Origins
from npu_upgrade.lineage.records import Lineage
from npu_upgrade.lineage.units import Relation, UnitLineage
from npu_upgrade.sources.tree import SourceTree
from npu_upgrade.threeway.pieces import as_module

_HANGS = (Relation.COPY, Relation.VENDORED, Relation.PATCH, Relation.OVERRIDE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Tie:
    """A unit of ours and the unit of upstream's that it copies, overrides or replaces."""

    unit: UnitLineage
    path: str
    name: str


@dataclass(frozen=True)
class Ours:
    """The side of a downstream that builds on ``package``; ``runners`` is the lineage of its runners."""

    side: Downstream
    package: str
    ties: tuple[Tie, ...]
    runners: Lineage | None

    @property
    def paths(self) -> set[str]:
        """The files of upstream's that ours hang on."""
        return {tie.path for tie in self.ties}

    @cached_property
    def digest(self) -> str:
        """What pins the side: equal where all its files are."""
        read = self.side.tree.contents(self.side.paths)
        return sha256("".join(f"{path} {sha256(data)}\n" for path, data in sorted(read.items())))[:16]

    @property
    def base(self) -> str | None:
        """The version that the runners were copied from, else the newest of any copy; None without copies."""
        if self.runners and self.runners.base:
            version = self.runners.base.version
            return version.sha or version.version
        units = [tie.unit for tie in self.ties if tie.unit.base]
        return max(units, key=lambda unit: unit.base_date).base if units else None

    @property
    def taken(self) -> datetime | None:
        """When the version that :attr:`base` names came out: ours were brought up to it as a whole."""
        if self.runners and self.runners.base:
            return self.runners.base.date
        days = [tie.unit.base_date for tie in self.ties if tie.unit.base_date]
        return datetime.fromisoformat(max(days)) if days else None


def read_ours(tree: SourceTree, upstreams: Mapping[str, SourceTree], package: str, spec: str) -> Ours:
    """The units of ``tree`` that hang on ``package``, whose history is at ``spec``.

    ``upstreams`` are the trees of what it builds on, as they were when it was last looked at.
    """
    side = Downstream(tree, upstreams)
    whole = Origins(side, {package: spec})
    ties = []
    for unit in whole.units:
        targets = [unit.upstream] if unit.relation in _HANGS else []
        for target in dict.fromkeys([*targets, *unit.patches]):
            path, _, name = target.partition(":")
            if path.partition("/")[0] == package and name:
                ties.append(Tie(unit, path, name))
    return Ours(side, package, tuple(ties), whole.runners)


@functools.lru_cache(maxsize=64)
def _units(source: str) -> Mapping[str, str]:
    return outline(source, _whole)


_whole: set[str] = set()


def text_of(source: str, name: str) -> str | None:
    """Upstream's text of what a tie names: a unit, the head of a class, or the lines that name a variable."""
    units = _units(source)
    if name in units:
        return units[name]
    own = name.rpartition(".")[2]
    if any(unit.startswith(f"{name}.") for unit in units):
        return "\n".join(re.findall(rf"^class {own}\b.*", source, re.MULTILINE))
    lines = re.findall(rf"^(?=[^#\n]*\b{re.escape(own)}\b *(?::[^=\n]*)?=[^=]).*$", source, re.MULTILINE)
    return "\n".join(lines) or None


def signature_of(text: str) -> str:
    """The signature of a function, given its source; empty for anything else."""
    try:
        nodes = ast.walk(ast.parse(as_module(text)))
    except SyntaxError:
        return ""
    return next((signature(node) for node in nodes if isinstance(node, _FUNCTIONS)), "")
