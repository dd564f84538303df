"""The runners and workers that a finding is about."""

from __future__ import annotations

from collections.abc import Sequence

from npu_upgrade.audit.world import World
from npu_upgrade.program.program import ClassSymbol


def nearest_common(runners: Sequence[ClassSymbol], world: World) -> ClassSymbol:
    """The nearest class of the worker files that all these derive from, itself included."""
    first = runners[0]
    shared = (base for base in first.mro if base in world.classes and all(base in cls.mro for cls in runners))
    return next(shared, first)
