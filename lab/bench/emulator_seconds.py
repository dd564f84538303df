"""Where the seconds of one `upgrade.py emulate` go: on a change that is right, and on the same one broken.

The change is a release on its own vllm-ascend against the release before. Nothing that ran before is known;
environments and byte code are there, as after the first emulated run of a machine.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.edits import Edit, edited
from bench.shared import UPGRADE, own_cache
from npu_upgrade.audit.triples import open_project
from npu_upgrade.ground.paths import APP, cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.tree import SourceTree

OMNI, ASCEND = "pypi:vllm-omni==0.24.0", "pypi:vllm-ascend==0.24.0rc1"
BEFORE = ("pypi:vllm-omni==0.22.0", "pypi:vllm-ascend==0.22.1rc1")
RIGHT_S, BROKEN_S = 300.0, 90.0
BROKEN: Edit = {
    "path": "vllm_omni/platforms/npu/worker/npu_ar_model_runner.py",
    "at": "NPUARModelRunner.execute_model",
    "do": "add-keyword",
    "call": "self._prepare_inputs",
    "keyword": "of_another_time",
    "value": "True",
}
_LINE = re.compile(r"^\[ *([\d.]+)s\] (.*)$")
_RUN = re.compile(r"^  (\S+) +([\d.]+) s$")
_KEPT = ("models", "native", "packages", "pycache", "references", "vllm")


@dataclass(frozen=True)
class Spent:
    """One command: its verdict, and (what, when it ended, how long it took, of that the engine's start)."""

    verdict: str
    total: float
    rows: list[tuple[str, float, float, float]]


def measure(out: Path) -> dict[str, Spent]:
    """Both commands, each in a folder below ``out``."""
    right = open_project(OMNI, "vllm-omni")
    found = {}
    with own_cache() as cache:
        emulation = Path(cache, APP, "emulation")
        emulation.mkdir()
        for part in _KEPT:
            (emulation / part).symlink_to(cache_root() / "emulation" / part)
        for name, tree in {"broken": edited(right, [BROKEN]), "right": right}.items():
            say(f"== emulate, {name}")
            found[name] = _spent(_written(tree, out / name / "omni"), out / name / "runs", cache)
    return found


def _written(tree: SourceTree, folder: Path) -> Path:
    """The tree as a checkout has it: files, and no record of a release."""
    for path, data in tree.contents(tree.list("")).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def _spent(omni: Path, out: Path, cache: str) -> Spent:
    command = [sys.executable, str(UPGRADE), "emulate", "--omni", f"dir:{omni}", "--ascend", ASCEND]
    command += ["--baseline", *BEFORE, "--out", str(out), "--format", "json"]
    done = subprocess.run(
        command, env=os.environ | {"XDG_CACHE_HOME": cache}, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    lines = [found for line in done.stderr.splitlines() if (found := _LINE.match(line))]
    total, rows = float(lines[-1][1]), []
    for line in lines:
        if run := _RUN.match(line[2]):
            file = out / "new" / f"{run[1]}.json"
            starts = json.loads(file.read_text("utf-8")).get("start_seconds", 0.0) if file.exists() else 0.0
            rows.append((run[1], float(line[1]), float(run[2]), starts))
    before = rows[0][1] - rows[0][2] if rows else total
    rows.insert(0, ("reading and choosing", before, before, 0.0))
    return Spent(json.loads(done.stdout)["verdict"], total, rows)


def cells(found: dict[str, Spent]) -> list[list[str]]:
    """The rows of the table."""
    return [
        [name, what, f"{at:.0f}", f"{took:.0f}", f"{starts:.0f}" if starts else ""]
        for name, one in found.items()
        for what, at, took, starts in [*one.rows, (f"all, {one.verdict}", one.total, one.total, 0.0)]
    ]


def short_of_goals(found: dict[str, Spent]) -> list[str]:
    """What is slower, or ended otherwise, than it should."""
    goals = {"right": ("PASS", RIGHT_S), "broken": ("FAIL", BROKEN_S)}
    return [
        f"a change that is {name}: {one.verdict} in {one.total:.0f} s, goal {verdict} in {most:.0f} s"
        for name, (verdict, most) in goals.items()
        for one in [found[name]]
        if one.verdict != verdict or one.total >= most
    ]
