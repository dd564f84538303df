"""What the emulated import tier says of a step, with the downstream as it stands."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from npu_upgrade.gates.emulation.dry_run import run
from npu_upgrade.gates.emulation.outcome import ABSENT, FAIL, PASS
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.watch.judge import Judge, Problems
from npu_upgrade.watch.line import Step

KIND = "import"


def importing(judge: Judge) -> Callable[[Step], Problems]:
    """Whether the workers can be imported on emulated CANN at a step; raises as the gate does."""

    def play(step: Step) -> tuple[Item, ...]:
        with tempfile.TemporaryDirectory(dir=_folder()) as out:
            played = run(judge.triple_at(step), [], Path(out), reuse=(PASS, FAIL, ABSENT))
        outcome = next(one for one in played.outcomes if one.tier == "import")
        if outcome.state not in (PASS, FAIL, ABSENT):  # the machine may be at fault: nothing is kept of that
            raise Blocked(
                f"the emulated import of {step.label} was not judged: {outcome.why}",
                expected="a run that ends",
                try_="the same command again, or without --tier",
            )
        if outcome.state != FAIL:
            return ()
        key = item_id(KIND, judge.ours.side.project.name, outcome.why)
        return (Item(key, KIND, f"import fails: {outcome.why}", outcome.where, "", True),)

    def found(step: Step) -> Problems:
        what = ["import", judge.ours.digest, judge.line.content(step), judge.vllm_spec]
        return {item.id: item for item in judge.kept_as(what, lambda: play(step))}

    return found


def _folder() -> Path:
    folder = cache_root() / "watch"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
