"""NPU code that upstream has made unnecessary: overrides equal to what they override, conditions that
are always the same with the given trees, notes to remove something once a version is reached.
"""

from __future__ import annotations

from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.workarounds.needless import NAME
from npu_upgrade.audit.workarounds.needless_imports import needless_import_guards
from npu_upgrade.audit.workarounds.needless_overrides import needless_overrides
from npu_upgrade.audit.workarounds.needless_questions import needless_questions, needless_version_guards
from npu_upgrade.audit.workarounds.reached_notes import reached_notes
from npu_upgrade.audit.world import World

__all__ = ["ABOUT", "NAME", "check"]
ABOUT = "overrides, guards and notes that the given upstream has made unnecessary"


def check(world: World) -> Iterator[Finding]:
    if not world.of_omni:
        return
    yield from needless_overrides(world)
    yield from needless_questions(world)
    for file in world.files:
        yield from needless_version_guards(world, file)
        yield from needless_import_guards(world, file)
        yield from reached_notes(world, file)
