"""What the emulated import tier says of a step, with the downstream as it stands."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from npu_upgrade.gates.emulation.dry_run import run, settled
from npu_upgrade.gates.emulation.outcome import FAIL
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.watch.judge import Judge, Problems
from npu_upgrade.watch.line import Step

KIND = "import"
_FOLDER = re.compile(r"/\S*/emulation/packages/[^/\s]+/")
"""Where a tree was put for the run, which tells of its content and of this machine."""


def importing(judge: Judge) -> Callable[[Step], Problems]:
    """Whether the workers can be imported on emulated CANN at a step; raises as the gate does.

    The gate keeps outcomes by the content of what was imported, its own included.
    """

    def play(step: Step) -> tuple[Item, ...]:
        say(f"importing on {step.label}")
        with tempfile.TemporaryDirectory(prefix="npu-upgrade-") as out:
            played = run(judge.triple_at(step), [], Path(out), reuse=settled)
        outcome = next(one for one in played.outcomes if one.tier == "import")
        if not settled(outcome):  # the machine may be at fault: nothing is kept of that
            raise Blocked(
                f"the emulated import of {step.label} was not judged: {outcome.why}",
                expected="a run that ends",
                try_="the same command again, or without --tier",
            )
        if outcome.state != FAIL:
            return ()
        why = _FOLDER.sub("", outcome.why)
        key = item_id(KIND, judge.ours.side.project.name, why)
        title = ": ".join(filter(None, (outcome.where, "import fails", why)))
        detail = _FOLDER.sub("", "\n".join(outcome.traceback))
        return (Item(key, KIND, title, detail, outcome.where.partition(":")[0], True),)

    known: dict[str, Problems] = {}

    def found(step: Step) -> Problems:
        content = judge.line.content(step)
        if content not in known:
            known[content] = {item.id: item for item in play(step)}
        return known[content]

    return found
