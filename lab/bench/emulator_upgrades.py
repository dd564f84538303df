"""Natural upgrades of vllm-omni: each fails on the emulated NPU before its fix, and passes after it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from bench.edits import Edit, edited
from bench.incidents import FOLDER, read_recipe
from bench.shared import UPGRADE, Run
from demo import take_theirs
from npu_upgrade.audit.triples import open_project, open_triple
from npu_upgrade.audit.world import Triple
from npu_upgrade.gates.emulation.catalogue import chosen
from npu_upgrade.gates.emulation.dry_run import run
from npu_upgrade.gates.emulation.outcome import FAIL, PASS, Outcome
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.sources.tree import SourceTree, overlay

FILE = FOLDER / "upgrades.yaml"


class Upgrade(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One natural upgrade: releases, what is run, what breaks, and the fix (see the file of cases).

    ``slowed``: edits of both sides, waits that make a race certain.
    """

    id: str
    omni: str
    ascend: str
    run: str
    says: str
    fix: Literal["merge", "own"] | list[Edit]
    workers_of: str | None = None
    slowed: list[Edit] = []

    @property
    def kinds(self) -> set[str]:
        """The kind of fix, and the tier."""
        return {self.fix if isinstance(self.fix, str) else "edits", self.run.partition(" ")[0]}


@dataclass(frozen=True)
class Reproduced:
    """What one upgrade did before and after its fix."""

    upgrade: Upgrade
    before: Outcome
    after: Outcome

    @property
    def as_recorded(self) -> bool:
        """It failed with the recorded text, and passed after the fix."""
        return self.before.state == FAIL and self.upgrade.says in self.before.why and self.after.state == PASS


def load_upgrades() -> list[Upgrade]:
    """The recorded upgrades."""
    return read_recipe(FILE, list[Upgrade])


def run_upgrades(upgrades: Sequence[Upgrade], out: Path, run: Run) -> list[Reproduced]:
    """Run each before and after its fix; logs and results go to ``out``."""
    found = []
    for one in upgrades:
        content = msgspec.to_builtins(one)
        kept = run.found(f"upgrade {one.id}", content, tuple[Outcome, Outcome])
        before, after = kept or _both(one, out / one.id)
        found.append(Reproduced(one, before, after))
        if found[-1].as_recorded:
            run.store(f"upgrade {one.id}", content, [before, after])
    return found


def _both(one: Upgrade, out: Path) -> list[Outcome]:
    """The outcome before the fix and after it."""
    say(f"== upgrade {one.id}")
    own = open_project(f"pypi:vllm-omni=={one.omni}", "vllm-omni")
    own = edited(own, one.slowed) if one.slowed else own
    broken = _with_workers(own, one.workers_of) if one.workers_of else own
    trees = {"before": broken, "after": _fixed(one, own, out)}
    return [replace(_play(tree, one, out / name), lines={}) for name, tree in trees.items()]


def _play(omni: SourceTree, one: Upgrade, out: Path) -> Outcome:
    """The outcome of the upgrade's run; of the import tier when that fails."""
    tier, _, name = one.run.partition(" ")
    triple = open_triple(None, f"pypi:vllm-ascend=={one.ascend}", None)
    wanted = chosen([name], [tier], omni=True) if name else []
    played = run(Triple(omni, triple.ascend, triple.vllm), wanted, out)
    imported = played.outcomes[0]
    return imported if imported.state != PASS or not name else played.outcomes[-1]


def _with_workers(tree: SourceTree, release: str) -> SourceTree:
    """``tree`` with the NPU worker folder of another release."""
    other = open_project(f"pypi:vllm-omni=={release}", "vllm-omni")
    gone: dict[str, str | None] = dict.fromkeys(Downstream(tree).runner_files)
    taken = {path: other.read(path) for path in Downstream(other).runner_files}
    return overlay(tree, gone | taken)


def _fixed(one: Upgrade, own: SourceTree, out: Path) -> SourceTree:
    if one.fix == "own":
        return own
    if one.fix == "merge":
        return _merged(one, own, out)
    return edited(own, one.fix)


def _merged(one: Upgrade, own: SourceTree, out: Path) -> SourceTree:
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(UPGRADE), "merge", "--omni", own.spec]
    command += ["--ascend", f"pypi:vllm-ascend=={one.ascend}", "--out", "merged"]
    subprocess.run(command, cwd=out, stdout=subprocess.DEVNULL, check=False)
    texts: dict[str, str | None] = {}
    for name in Downstream(own).runner_files:
        path = out / "merged" / name
        if path.exists():
            take_theirs(path)
            texts[name] = path.read_text(encoding="utf-8")
    return overlay(own, texts)
