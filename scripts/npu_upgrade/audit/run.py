"""Runs the checks over a world.

For a command (:func:`look_at_both`) what was found before is kept, the old pair is looked at in a process
of its own, and a check that breaks takes nothing but itself with it.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import traceback
from collections.abc import Callable, Iterable, Sequence

import msgspec

from npu_upgrade.audit import checks
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.world import World
from npu_upgrade.ground.beside import beside, from_both_ends
from npu_upgrade.ground.collector import no_collector
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.kept import keep, kept
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.content import code_digest, content_of

# The rooms whose code decides what is found.
ROOMS = ("audit", "program", "lineage", "threeway", "code", "sources")
# How the checks are called that have least in common with the others: another process begins with these.
_APART = (
    "parity",
    "stale-copies",
    "copied-otherwise",
    "cuda-names",
    "config-defaults",
    "imports",
    "markers",
    "versions",
)


class Outcome(msgspec.Struct):
    """``findings`` in the order of the files; ``faults``: check -> how it broke (a defect of ours)."""

    findings: list[Finding] = []
    faults: dict[str, str] = {}

    def without(self, checks: Iterable[str]) -> list[Finding]:
        """The findings of all but some checks."""
        return [finding for finding in self.findings if finding.check not in checks]


def check_names() -> list[str]:
    """The names of all checks, as their modules are called with ``-`` for ``_``."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(checks.__path__))


def run_checks(world: World, names: Iterable[str] | None = None) -> list[Finding]:
    """The findings of the named checks (default: all), one per key, in the order of the files."""
    found: dict[str, Finding] = {}
    with no_collector():
        for name in check_names() if names is None else names:
            module = importlib.import_module(f"{checks.__name__}.{name.replace('-', '_')}")
            for nameless in module.check(world):
                finding = msgspec.structs.replace(nameless, check=name)
                found.setdefault(finding.key, finding)
    return in_order(found.values())


def look_at_both(world: World, names: Sequence[str]) -> tuple[Outcome, Outcome]:
    """The outcome of a triple and of the old one beside it, which is empty when there is none.

    Two processes halve the time on two cores, and none holds the trees of both pairs. Where the old pair
    is known, as after an edit, they share the checks; findings are kept, so that here they are only read.
    """
    old = World(world.old.triple) if world.old else None
    if old and not _is_kept(old, names):
        waiting = beside(lambda: msgspec.json.encode(look(old, names)))
        return look(world, names), msgspec.json.decode(waiting(), type=Outcome)
    known = KeptFindings(world)
    missing = sorted((name for name in names if known.get(name) is None), key=_is_apart)
    with from_both_ends(missing) as (front, back):
        waiting = beside(lambda: msgspec.json.encode(look(world, back).faults))
        look(world, front)
        waiting()
    return look(world, names), look(old, names) if old else Outcome()


def _is_apart(name: str) -> int:
    return next((n for n, start in enumerate(reversed(_APART), 1) if name.startswith(start)), 0)


def _is_kept(world: World, names: Sequence[str]) -> bool:
    found = KeptFindings(world)
    return all(found.get(name) is not None for name in names)


def look(world: World, names: Iterable[str]) -> Outcome:
    """The findings of the named checks on one triple."""
    known = KeptFindings(world)
    outcome = Outcome()
    with no_collector(last=True):
        for name in names:
            found = known.get(name)
            if found is None:
                found = _run(world, name, outcome)
                if name not in outcome.faults:
                    known.put(name, found)
            outcome.findings += found
    outcome.findings = in_order(outcome.findings)
    return outcome


def _run(world: World, name: str, outcome: Outcome) -> list[Finding]:
    try:
        return run_checks(world, [name])
    except UpgradeError:
        raise
    except Exception as error:
        # The other checks' findings are worth having, and a broken one must never read as FAIL or PASS.
        outcome.faults[name] = f"{type(error).__name__}: {error}"
        say(f"note: check {name} broke; this is a defect of the audit\n{traceback.format_exc()}")
        return []


class KeptFindings:
    """What each check found on one triple and the old one beside it, a file for each.

    They are kept by the content of all that was looked at, and by our own code.
    """

    def __init__(self, world: World) -> None:
        triples = [world.triple] + ([world.old.triple] if world.old else [])
        content = [content_of(tree) for triple in triples for tree in triple.trees().values()]
        self.folder = cache_root() / "audit" / sha256(json.dumps([content, code_digest(*ROOMS)]))[:24]

    def get(self, check: str) -> list[Finding] | None:
        """The findings of a check, None when they are not known."""
        return kept(self.folder / f"{check}.json", list[Finding])

    def once(self, check: str, find: Callable[[], list[Finding]]) -> list[Finding]:
        """The findings of a check, which is made where they are not known."""
        found = self.get(check)
        if found is None:
            found = find()
            self.put(check, found)
        return found

    def put(self, check: str, found: list[Finding]) -> None:
        """Keep them."""
        keep(self.folder / f"{check}.json", found)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in the order of the files."""
    return sorted(findings, key=lambda f: (f.here.path, f.here.line, f.check, f.subject))
