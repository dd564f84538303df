"""Where ours in a conflict is what the GPU side did in the old pair, and does otherwise today."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from npu_upgrade.code.module import Unit
from npu_upgrade.code.statements import END, statements_of
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.lineage.downstream import Downstream, omni_side
from npu_upgrade.port.sides import keys_of, read_gpu_side, statements
from npu_upgrade.sources.tree import SourceTree, open_source

_FEW, _MOST = 8, 8  # statements that tell nothing yet, and calls that are named
_STILL = 0.5  # the share of them that the GPU side still has where it did not move on
_CALL = re.compile(r"\bself\.([A-Za-z_]\w*)\(")


def moved_on(
    omni: str,
    conflicts: Iterable[tuple[str, str, Sequence[str]]],
    before: Callable[[], SourceTree | None],
) -> list[str]:
    """What the mirrored method does today, for each conflict whose own statements it has given up.

    ``omni`` is the spec of the tree that is merged, ``before`` gives that of the old pair; a conflict is its
    path, its method (``Class.method``) and the texts of base, ours and theirs. Nothing where a tree cannot be
    had or mirrors no class.
    """
    long = [one for one in conflicts if len(_own(one[2])) >= _FEW]
    try:
        side = omni_side(open_source(omni)) if long else None
        told = [_told(side, path, method, texts, before) for path, method, texts in long] if side else []
    except UpgradeError:
        return []
    return list(dict.fromkeys(filter(None, told)))


def _own(texts: Sequence[str]) -> set[str]:
    """The statements that only ours has."""
    try:
        base, ours, theirs = ({one.key for one in statements_of(text)} - {END} for text in texts)
    except SyntaxError:
        return set()
    return ours - base - theirs


def _told(
    side: Downstream, path: str, method: str, texts: Sequence[str], before: Callable[[], SourceTree | None]
) -> str:
    owner, _, name = method.rpartition(".")
    runner = next((one for one in side.runners if one.path == path and owner in one.classes), None)
    gpu = read_gpu_side(side.tree, side) if runner and runner.gpu_path else None
    unit = gpu.unit(runner.kind, method) if runner and gpu else None
    if runner is None or gpu is None or unit is None:
        return ""
    own = _own(texts)
    kept = _held(own, unit)
    if kept >= len(own) * _STILL or (old := before()) is None:
        return ""
    had = read_gpu_side(old, side).unit(runner.kind, method)
    if had is None or _held(own, had) < len(own) * _STILL:  # it never was the GPU side's
        return ""
    npu = side.tree.read(path)
    defined = {one.name for module in gpu.modules.values() for one in module.units.values()}
    calls = [call for call in dict.fromkeys(_CALL.findall(unit.source)) if call in defined]
    calls = [call for call in calls if f"self.{call}(" not in npu]
    called = ", ".join(calls[:_MOST]) + (", ..." if len(calls) > _MOST else "")
    instead = f" and calls {called} instead" if calls else ""
    return (
        f"{method}: ours is what the GPU side did in the old pair: {runner.gpu_class}.{name} "
        f"({runner.gpu_path}:{unit.start + 1}-{unit.end}) has {kept} of the {len(own)} statements of ours"
        f"{instead}. It is rewritten after the merge, when the audit asks for it and port brings what it "
        "calls: answer ours now, and write it once, then"
    )


def _held(own: set[str], unit: Unit) -> int:
    """How many of the statements a method has."""
    there = keys_of(statements(unit))
    return sum(key in there for key in own)
