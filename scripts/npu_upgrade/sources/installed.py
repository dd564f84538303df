"""What a Python interpreter has installed, and which CANN toolkit is on the machine.

Only package metadata is read: importing torch_npu or vllm_ascend would start a driver.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from npu_upgrade.ground.errors import BadInput

PACKAGES = ("vllm", "vllm-omni", "vllm-ascend", "torch", "torch-npu", "transformers")
DEFAULT_TOOLKIT = Path("/usr/local/Ascend/ascend-toolkit/latest")
_SECONDS = 30
_PROBE = """
import importlib.metadata as metadata, json, sys
sys.path = [entry for entry in sys.path if entry]
found = {}
for name in sys.argv[1:]:
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        continue
    url = package.read_text("direct_url.json")
    origin = json.loads(url) if url else {}
    version = package.version or "unknown"
    found[name] = {"version": version, "folder": str(package.locate_file("")), "origin": origin}
json.dump(found, sys.stdout)
"""


@dataclass(frozen=True)
class Installed:
    """One installed package.

    ``folder`` is the site folder that holds its metadata; ``checkout`` is the source tree it
    was installed from and ``editable`` whether that tree is what runs; ``commit`` is the
    commit pip recorded for an install from git.
    """

    name: str
    version: str
    folder: str
    checkout: str | None = None
    editable: bool = False
    commit: str | None = None


def installed(python: Path | None = None, packages: tuple[str, ...] = PACKAGES) -> list[Installed]:
    """The packages an interpreter (this one by default) has, by metadata alone.

    Raises :class:`BadInput` when ``python`` does not run as a Python 3.8 or newer.
    """
    command = [str(python or sys.executable), "-c", _PROBE, *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError) as error:
        detail = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        raise BadInput(
            f"{command[0]} could not list its packages: {detail}",
            expected="the path of a Python 3.8 or newer interpreter",
            try_="--python /path/to/venv/bin/python",
        ) from error
    return [_read(name, entry) for name, entry in found.items()]


def _read(name: str, entry: dict) -> Installed:
    origin = entry["origin"]
    url = urlparse(origin.get("url", ""))
    is_folder = url.scheme == "file" and "dir_info" in origin
    return Installed(
        name,
        entry["version"],
        entry["folder"],
        checkout=unquote(url.path) if is_folder else None,
        editable=bool(origin.get("dir_info", {}).get("editable")),
        commit=origin.get("vcs_info", {}).get("commit_id"),
    )


def cann_toolkit(root: Path | None = None) -> tuple[str, Path] | None:
    """The CANN toolkit version and the file that says so; None when there is no toolkit."""
    root = root or Path(os.environ.get("ASCEND_HOME_PATH") or DEFAULT_TOOLKIT)
    for path in [*sorted(root.glob("*/ascend_toolkit_install.info")), root / "version.cfg"]:
        if path.is_file() and (version := _cann_version(path.read_text(errors="replace"))):
            return version, path
    return None


def _cann_version(text: str) -> str | None:
    """``version=8.3.RC1`` of an install.info, ``toolkit_running_version=[7.8:8.3.RC1]`` of a version.cfg."""
    match = re.search(r"^(?:toolkit_running_|toolkit_installed_)?version\s*=\s*(.+)$", text, re.MULTILINE)
    return match[1].strip().strip("[]").split(":")[-1].split("]")[0] if match else None
