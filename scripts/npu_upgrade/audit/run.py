"""Runs the checks over a world."""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil
from collections.abc import Generator, Iterable

from npu_upgrade.audit import checks
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.world import World


def check_names() -> list[str]:
    """The names of all checks, as their modules are called with ``-`` for ``_``."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(checks.__path__))


def run_checks(world: World, names: Iterable[str] | None = None) -> list[Finding]:
    """The findings of the named checks (default: all), one per key, in the order of the files."""
    found: dict[str, Finding] = {}
    with no_collector():
        for name in check_names() if names is None else names:
            module = importlib.import_module(f"{checks.__name__}.{name.replace('-', '_')}")
            for finding in module.check(world):
                found.setdefault(finding.key, finding)
    return in_order(found.values())


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in the order of the files."""
    return sorted(findings, key=lambda f: (f.here.path, f.here.line, f.check, f.subject))


@contextlib.contextmanager
def no_collector(*, last: bool = False) -> Generator[None]:
    """Garbage collection waits: it would walk all the trees of all files again and again.

    ``last`` tells that what is made stays until the process ends, so no collection need ever look at it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if last:
                gc.freeze()
            gc.enable()
