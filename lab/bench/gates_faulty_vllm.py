"""A general plugin of vLLM that breaks the server it is loaded in: as a module of the faulty server only.

``folder(place)`` writes what has to be on that server's PYTHONPATH. ``BENCH_FAULT`` says what happens.
Nothing of the bench may be imported here: this file is copied.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import threading
from pathlib import Path

_MODULE = "gates_faulty_vllm"
_LINE = "the same line over and over, as a server writes it that cannot stop\n"


def folder(place: Path) -> Path:
    """This module and an entry point for it, as an installed package has them."""
    shutil.copy(__file__, place / f"{_MODULE}.py")
    info = place / f"{_MODULE}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_MODULE}\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{_MODULE} = {_MODULE}:register\n", encoding="utf-8"
    )
    return place


def register() -> None:
    """What vLLM calls in each of its processes."""
    {"second-request": _second_request, "flood": _flood}.get(os.environ.get("BENCH_FAULT", ""), int)()


def _second_request() -> None:
    """The engine runs out of memory with its second request."""
    core = importlib.import_module("vllm.v1.engine.core").EngineCore
    add, seen = core.add_request, []

    def add_request(self, request, *more, **options):
        seen.append(request)
        if len(seen) == 2:
            importlib.import_module("torch").empty(1 << 46)
        return add(self, request, *more, **options)

    core.add_request = add_request


def _flood() -> None:
    """Every process writes without end."""

    def write() -> None:
        while True:
            sys.stderr.write(_LINE * 1000)

    if not any(thread.name == "flood" for thread in threading.enumerate()):
        threading.Thread(target=write, name="flood", daemon=True).start()
