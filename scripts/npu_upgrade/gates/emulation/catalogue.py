"""The scenarios of the emulator's dry run, read without starting anything."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.paths import SKILL

EMULATOR = SKILL / "emulator"
FILE = EMULATOR / "npu_emulator" / "dry_run" / "catalogue.py"
SERVED = ("serve", "pipelines")  # behind a server, in processes of its own
TIERS = ("import", "eager", "graph", *SERVED)


@cache
def scenarios() -> tuple[Any, ...]:
    """All scenarios, in the order they run."""
    spec = importlib.util.spec_from_file_location("npu_emulator_catalogue", FILE)
    if spec is None or spec.loader is None or not FILE.is_file():
        raise BadInput(
            f"no catalogue of scenarios at {FILE}",
            expected="the whole repository, as the skill's installer copies it",
            try_="install the skill again (npx skills add REPOSITORY), or run from a git clone",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module.SCENARIOS


def chosen(names: Sequence[str], tiers: Sequence[str], *, omni: bool) -> list[tuple[str, Any]]:
    """The (tier, scenario) pairs to run, by tier and then in catalogue order.

    ``names`` are scenario names and "core", or "all". Without vllm-omni only those that need none count.
    Raises :class:`BadInput` for a name that does not exist, or that cannot run here.
    """
    wanted = _wanted(names, omni)
    found = [(tier, one) for tier in TIERS for one in wanted if tier in tiers and tier in one.tiers]
    if not found and set(tiers) - {"import"}:
        raise BadInput(
            f"none of these scenarios runs in {', '.join(tiers)}",
            expected=f"a scenario that has the tier: {upgrade('emulate', '--list').short}",
            try_="--scenarios all, or other tiers",
        )
    return found


def without_graphs(tier: str, scenario: Any) -> tuple[str, Any] | None:
    """The same run without graphs; None where there is none."""
    if tier == "graph" and "eager" in scenario.tiers:
        return "eager", scenario
    name = f"{scenario.name}-eager"
    return next(((tier, one) for one in scenarios() if one.name == name and tier in one.tiers), None)


def _wanted(names: Sequence[str], omni: bool) -> list[Any]:
    fitting = [one for one in scenarios() if one.omni == omni]
    known = {one.name for one in fitting}
    if list(names) == ["all"]:
        return fitting
    if wrong := next((name for name in names if name not in known | {"core"}), None):
        there = any(one.name == wrong for one in scenarios())
        other = f"scenario {wrong} {'is one of vllm-ascend alone' if omni else 'needs --omni'}"
        raise BadInput(
            other if there else f"no scenario {wrong}",
            expected=f"core, all, or some of {', '.join(sorted(known))}",
            try_="--scenarios core",
        )
    return [one for one in fitting if one.name in names or (one.core and "core" in names)]


_SPLIT = re.compile(r"-(?:tp|pp|cfg|sp)(\d+)$")


def devices(some: Iterable[Any]) -> int:
    """As many emulated devices as the widest of the scenarios is split over, by its options or its name."""
    return max(map(_split, some), default=1)


def _split(one: Any) -> int:
    """Over how many devices a scenario is split; a pipeline's own file or command splits it by itself."""
    named = _SPLIT.search(one.name)
    asked = [one.options.get(f"{way}_parallel_size", 1) for way in ("tensor", "pipeline")]
    return max(int(named[1]) if named else 1, asked[0] * asked[1])


def digest(folder: Path) -> str:
    """A hash of the emulator's sources in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".cpp"):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
