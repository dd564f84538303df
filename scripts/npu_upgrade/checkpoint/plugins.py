"""Architectures that installed plugins register, by their metadata and source; none is imported."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from npu_upgrade.checkpoint.registry import registered_by_calls
from npu_upgrade.sources import open_source

_PROBE = """
import importlib.metadata as metadata, importlib.util, json, os, sys
found = {}
for point in metadata.entry_points(group="vllm.general_plugins"):
    module = point.value.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(module)  # of a package installed as one edits it, too
    except (ImportError, ValueError):
        spec = None
    if spec and spec.submodule_search_locations:
        package = list(spec.submodule_search_locations)[0]
        found[point.name] = {"module": module, "folder": os.path.dirname(package)}
json.dump(found, sys.stdout)
"""


def installed_plugins(python: Path) -> dict[str, tuple[str, str]]:
    """Architecture -> (module, class) of the plugins an interpreter has; empty when it cannot be asked."""
    try:
        done = subprocess.run(
            [str(python), "-P", "-c", _PROBE], capture_output=True, text=True, timeout=60, check=True
        )
        points = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    found: dict[str, tuple[str, str]] = {}
    for point in points.values():
        package = Path(point["folder"]) / point["module"]
        if point["module"] not in ("vllm", "vllm_ascend") and package.is_dir():
            found |= registered_by_calls(open_source(f"dir:{point['folder']}"), point["module"])
    return found
