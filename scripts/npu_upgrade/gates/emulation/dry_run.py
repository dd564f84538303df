"""One triple through the dry run: its environment, its plan, its outcomes and executed lines."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.audit.world import Triple
from npu_upgrade.gates.emulation.catalogue import EMULATOR, digest
from npu_upgrade.gates.emulation.changed import watched
from npu_upgrade.gates.emulation.environment import Environment, prepare
from npu_upgrade.gates.emulation.outcome import NOT_REACHED, PASS, Outcome, read_outcome
from npu_upgrade.gates.emulation.process import play, runner_module
from npu_upgrade.gates.vllm_cpu import models_folder, references
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say


@dataclass(frozen=True)
class Played:
    """What a triple did: outcomes in the order they ran, and executed lines by path in the tree."""

    outcomes: tuple[Outcome, ...]
    executed: dict[str, set[int]] = field(default_factory=dict)

    @property
    def reached(self) -> bool:
        """Whether the import tier passed, so that scenarios could start."""
        return bool(self.outcomes) and self.outcomes[0].state == PASS


def run(triple: Triple, wanted: Sequence[tuple[str, Any]], out: Path) -> Played:
    """Import everything, then run each (tier, scenario); results and logs are in ``out``."""
    return _run(triple, prepare(triple.omni, triple.ascend, triple.vllm), wanted, out)


def _run(triple: Triple, environment: Environment, wanted: Sequence[tuple[str, Any]], out: Path) -> Played:
    play(environment.python, environment.variables, _plan(triple, environment, wanted, out), out)
    outcomes = [read_outcome(out, "import", "import")]
    outcomes += [read_outcome(out, tier, one.name) for tier, one in wanted]
    return Played(tuple(outcomes), _executed(environment, outcomes))


def run_kept(triple: Triple, wanted: Sequence[tuple[str, Any]], out: Path) -> Played:
    """Like :func:`run`; outcomes of the same content, emulator and scenarios are read from the cache."""
    environment = prepare(triple.omni, triple.ascend, triple.vllm)
    kept = cache_root() / "emulation" / "outcomes" / f"{_identity(environment, wanted)}.json"
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        outcomes = msgspec.json.decode(kept.read_bytes(), type=list[Outcome])
        say(f"ran before: {len(outcomes)} outcomes read from the cache")
        return Played(tuple(outcomes))
    played = _run(triple, environment, wanted, out)
    if not any(outcome.state == NOT_REACHED for outcome in played.outcomes):
        write_atomic(kept, msgspec.json.encode([replace(one, lines={}) for one in played.outcomes]))
    return played


def _plan(
    triple: Triple, environment: Environment, wanted: Sequence[tuple[str, Any]], out: Path
) -> dict[str, Any]:
    files = watched(triple)
    return {
        "out": str(out),
        "models": str(models_folder()),
        "references": references(wanted),
        "modules": _modules(triple, files),
        "watched": [str(environment.path(path)) for path in files],
        "runs": [{"tier": tier, "scenario": one.name, "seconds": one.seconds} for tier, one in wanted],
    }


def _modules(triple: Triple, files: Sequence[str]) -> list[str]:
    """What the import tier imports: vllm-ascend's runner and every module of omni's NPU workers."""
    omni = [path for path in files if triple.omni and triple.omni.exists(path)]
    own = (path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in omni)
    return [runner_module(triple.ascend, triple.vllm), *own]


def _executed(environment: Environment, outcomes: Sequence[Outcome]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for outcome in outcomes:
        for path, lines in outcome.lines.items():
            found.setdefault(environment.tree_path(path), set()).update(lines)
    return found


def _identity(environment: Environment, wanted: Sequence[tuple[str, Any]]) -> str:
    """A hash of all that decides the outcomes of a run."""
    parts = [str(environment.python), *sorted(map(str, environment.packages.values()))]
    parts += [f"{tier} {one!r}" for tier, one in wanted]
    parts.append(digest(EMULATOR))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
