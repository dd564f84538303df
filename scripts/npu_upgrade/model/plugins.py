"""Architectures that installed plugins register, by their metadata and source; none is imported."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from npu_upgrade.model.registry import registered_by_calls
from npu_upgrade.sources import open_source

_PROBE = """
import importlib.metadata as metadata, json, sys
found = {}
for point in metadata.entry_points(group="vllm.general_plugins"):
    files = getattr(point.dist, "files", None) or []
    tops = sorted({file.parts[0] for file in files if file.suffix == ".py" and len(file.parts) > 1})
    module = point.value.partition(":")[0].partition(".")[0]
    folder = str(point.dist.locate_file("")) if point.dist else ""
    found[point.name] = {"module": module, "folder": folder, "tops": tops}
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
