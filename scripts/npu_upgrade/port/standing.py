"""How much of a hunk the NPU side holds already."""

from __future__ import annotations

from collections import Counter

from npu_upgrade.port.driven import TELLING
from npu_upgrade.port.hunks import TEXT, Hunk
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.port.sides import keys_of, statements
from npu_upgrade.threeway.align import weight


def lacking(hunk: Hunk, own: Counter[str]) -> Counter[str]:
    """The statements that come with a hunk and that a unit with the statements ``own`` has fewer of.

    A statement that only moved inside the unit lacks nowhere.
    """
    there = keys_of(hunk.diff.new) if hunk.diff else hunk.added
    return _left(hunk.added, there, own)


def lingering(hunk: Hunk, own: Counter[str]) -> Counter[str]:
    """The statements that go with a hunk and that the unit has more of than the GPU side now."""
    return _left(hunk.removed, own, keys_of(hunk.diff.new if hunk.diff else ()))


def _left(asked: Counter[str], more: Counter[str], less: Counter[str]) -> Counter[str]:
    found = {k: min(n, more[k] - less[k]) for k, n in asked.items() if not k.startswith(TEXT)}
    return +Counter(found)


def own_keys(hunk: Hunk, npu: NpuSide) -> Counter[str]:
    """The statements of the NPU unit that a hunk belongs to."""
    return keys_of(statements(npu.modules[hunk.runner.kind].units.get(hunk.unit)))


def is_ported(hunk: Hunk, npu: NpuSide) -> bool:
    """Whether the NPU side holds all of a hunk that says something, and nothing of what goes with it."""
    if hunk.kind == "base":
        name = hunk.new[0].key.rpartition(".")[2]
        return any(cls.name == name for cls in npu.ancestors(hunk.runner))
    own = own_keys(hunk, npu)
    if hunk.kind == "method":
        return bool(own)
    return holds(hunk, own)


def holds(hunk: Hunk, own: Counter[str]) -> bool:
    """Whether a unit with the statements ``own`` has a change, as far as counting tells."""
    return not (_telling(lacking(hunk, own), hunk.added) or _telling(lingering(hunk, own), hunk.removed))


def _telling(left: Counter[str], side: Counter[str]) -> bool:
    """Whether ``left`` of one side of a hunk says anything: a short statement does where no longer one is."""
    longest = max(map(weight, side), default=0)
    return any(weight(key) > TELLING or longest <= TELLING for key in left)
