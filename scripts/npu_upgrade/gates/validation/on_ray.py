"""The cells of a matrix as Ray tasks: each runs where as many NPUs are free as it needs.

Ray belongs to the cluster, not to this bundle: a small program in the serving interpreter talks to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from npu_upgrade.evidence.store import Store
from npu_upgrade.evidence.unpack import take
from npu_upgrade.gates.validation.hardware import shipment
from npu_upgrade.gates.validation.rungs import Outcome, Rung, judged
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.verdict import Verdict

PROGRAM = Path(__file__).with_name("ray_program.py")


def run(rungs: Sequence[Rung], npus: Sequence[int], address: str, python: str, store: Store) -> list[Outcome]:
    """Run rungs as tasks, each with its number of NPUs; evidence comes back as packs and is imported.

    A rung waits for the one it stands on. Raises :class:`Blocked` when the cluster cannot be asked or has
    not as many NPUs as a rung needs.
    """
    with tempfile.TemporaryDirectory(prefix="npu-upgrade-ray-") as scratch:
        shipped = shipment(Path(scratch) / "skill")
        packs = Path(scratch) / "packs"
        packs.mkdir()
        tasks = [
            {"name": one.name, "after": one.after, "argv": one.command.argv[1:], "npus": count}
            for one, count in zip(rungs, npus, strict=True)
        ]
        asked = {"address": address, "tasks": tasks, "skill": str(shipped), "packs": str(packs)}
        said = _ask(python, asked)
        return [_outcome(rung, said.get(rung.name), store) for rung in rungs]


def _ask(python: str, asked: dict) -> dict[str, dict]:
    """Name -> what the program says of a task; its progress goes to stderr as it comes."""
    process = subprocess.Popen(
        [python, "-P", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "RAY_DEDUP_LOGS": "0"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    found: dict[str, dict] = {}
    trouble = ""
    try:
        process.stdin.write(json.dumps(asked))
        process.stdin.close()
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            one = json.loads(line)
            if "trouble" in one:
                trouble = one["trouble"]
            else:
                found[one["name"]] = one
                say(f"   {one['name']}: exit code {one['code']} on {one['node']}")
    finally:
        code = process.wait()
    if trouble or (code and not found):
        raise Blocked(
            trouble or f"{python} could not run the Ray program (exit code {code})",
            expected="a Ray cluster with the NPUs that the matrix needs, and ray in the serving interpreter",
            try_="ray status; --ray ADDRESS of its head; or leave Ray out and run on one machine",
        )
    return found


def _outcome(rung: Rung, said: dict | None, store: Store) -> Outcome:
    if said is None:
        return Outcome(rung, Verdict.INCONCLUSIVE, "its Ray task gave no answer")
    if not said["ran"]:
        return Outcome(rung, Verdict.INCONCLUSIVE, said["stdout"], ran=False)
    outcome = judged(rung, said["code"], said["stdout"], said["seconds"])
    if said["pack"]:
        added, _ = take(store, Path(said["pack"]))
        outcome.data["imported"] = added
    return outcome
