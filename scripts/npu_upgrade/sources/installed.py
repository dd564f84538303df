"""What a Python interpreter has installed, and which CANN toolkit is on the machine.

Nothing is imported: importing torch_npu or vllm_ascend would start a driver.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from npu_upgrade.ground.errors import BadInput, Blocked

PACKAGES = ("vllm", "vllm-ascend", "vllm-omni", "torch", "torch-npu", "transformers", "ray", "lm-eval")
_ASK = ("vllm-ascend", "vllm-omni")
DEFAULT_TOOLKIT = Path("/usr/local/Ascend/ascend-toolkit/latest")
_TOOLKIT_HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH")
_SECONDS = 120
_PROBE = """
import importlib.metadata as metadata, importlib.util, json, sys
sys.path = [entry for entry in sys.path if entry]

def place(name):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    folders = list(spec.submodule_search_locations or []) if spec else []
    return spec and (spec.origin or (folders and folders[0]) or None), folders

packages, imports, adapters = [], {}, {}
for name in sys.argv[1:]:
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        pass
    else:
        origin = json.loads(package.read_text("direct_url.json") or "{}")
        version = package.version or "unknown"
        folder = str(package.locate_file(""))
        packages.append({"name": name, "version": version, "folder": folder, "origin": origin})
        packages[-1]["requires"] = package.requires or []
    module = name.replace("-", "_")
    if place(module)[0]:
        imports[module] = place(module)[0]
groups = ("vllm.platform_plugins", "vllm.general_plugins")
selectable = sys.version_info >= (3, 10)
points = [one for group in groups for one in metadata.entry_points(group=group)] if selectable else []
plugins = sorted(f"{one.name} = {one.value}" for one in points)
for one in points:
    top = one.value.partition(":")[0].partition(".")[0]
    if one.group == groups[1] and top not in imports and place(top)[1]:
        adapters[top] = place(top)[1][0]
found = {"python": sys.version.split()[0], "packages": packages, "imports": imports}
print(json.dumps(dict(found, plugins=plugins, adapters=adapters)))
"""


class Package(msgspec.Struct, frozen=True):
    """One installed distribution.

    ``folder`` is the site folder that holds its metadata; ``origin`` is what pip recorded of its source;
    ``requires`` are the requirements of its metadata.
    """

    name: str
    version: str
    folder: str
    origin: dict[str, Any] = {}
    requires: list[str] = []

    @property
    def checkout(self) -> str | None:
        """The source tree it was installed from."""
        url = urlparse(self.origin.get("url", ""))
        return unquote(url.path) if url.scheme == "file" and "dir_info" in self.origin else None

    @property
    def editable(self) -> bool:
        """Whether that tree is what runs."""
        return bool(self.origin.get("dir_info", {}).get("editable"))

    @property
    def commit(self) -> str | None:
        """The commit, for an install from git."""
        return self.origin.get("vcs_info", {}).get("commit_id")

    def as_json(self) -> dict[str, Any]:
        names = ("name", "version", "folder", "checkout", "editable", "commit")
        return {name: getattr(self, name) for name in names}


class Installed(msgspec.Struct, frozen=True):
    """What an interpreter of the version ``python`` has.

    ``imports``: package -> the file or folder it would be imported from. ``plugins`` are vLLM's entry points;
    ``adapters``: package -> folder of those that others than vLLM's own projects registered.
    """

    python: str
    packages: list[Package] = []
    imports: dict[str, str] = {}
    plugins: list[str] = []
    adapters: dict[str, str] = {}

    @property
    def versions(self) -> dict[str, str]:
        """Distribution -> version."""
        return {one.name: one.version for one in self.packages}

    @property
    def required(self) -> dict[str, str]:
        """Distribution -> the versions that the installed vllm-ascend and vllm-omni ask for."""
        found: dict[str, SpecifierSet] = {}
        for text in (text for one in self.packages if one.name in _ASK for text in one.requires):
            asked = Requirement(text)
            name = canonicalize_name(asked.name)
            if name in PACKAGES and asked.specifier and (not asked.marker or asked.marker.evaluate()):
                found[name] = found.get(name, SpecifierSet()) & asked.specifier
        return {name: str(found[name]) for name in sorted(found)}

    def folder(self, package: str) -> Path | None:
        """The folder of an importable package."""
        path = Path(self.imports[package]) if package in self.imports else None
        return path.parent if path and path.suffix else path


def installed(
    python: Path | None = None,
    packages: tuple[str, ...] = PACKAGES,
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Installed:
    """Ask an interpreter, this one by default. Raises :class:`BadInput` when it is no Python 3.8 or newer."""
    command = [str(python or sys.executable), "-c", _PROBE, *packages]
    environment = None if variables is None else dict(variables)
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=cwd,
            capture_output=True,
            encoding="utf-8",
            timeout=_SECONDS,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=Installed)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        detail = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        raise BadInput(
            f"{command[0]} could not list its packages: {detail}",
            expected="the path of a Python 3.8 or newer interpreter",
            try_="--python /path/to/venv/bin/python",
        ) from error


def serving(python: Path, variables: Mapping[str, str], cwd: Path, also: Iterable[str] = ()) -> Installed:
    """What an interpreter has that serves, and of ``also``.

    Raises :class:`Blocked` when it does not run or has no vLLM.
    """
    try:
        found = installed(python, tuple(dict.fromkeys((*PACKAGES, *also))), variables, cwd)
        why = "" if "vllm" in found.imports else f"{python} has no vllm"
    except BadInput as error:
        why = error.what
    if why:
        raise Blocked(
            why,
            expected="an interpreter, 3.11 or newer, that vllm (and on an NPU vllm-ascend) is installed for",
            try_="--python /path/to/python, or --python cpu for this project's own vLLM on the CPU",
        )
    return found


def misplaced(found: Installed, roots: Mapping[str, Path]) -> list[str]:
    """Packages that would not be imported from below the root they are expected in."""
    wrong = []
    for package, root in roots.items():
        folder = found.folder(package)
        if folder is None:
            wrong.append(f"{package} is not installed, expected from {root}")
        elif not folder.resolve().is_relative_to(root.resolve()):
            wrong.append(f"{package} is imported from {folder}, expected from {root}")
    return wrong


def cann_toolkit(variables: Mapping[str, str]) -> tuple[str, Path] | None:
    """The CANN toolkit version that a process with these variables uses, and the file that says so.

    None when there is no toolkit.
    """
    root = Path(variables.get("ASCEND_HOME_PATH") or DEFAULT_TOOLKIT)
    for path in [*sorted(root.glob("*/ascend_toolkit_install.info")), root / "version.cfg"]:
        if path.is_file() and (version := _cann_version(path.read_text(errors="replace"))):
            return version, path
    return None


def toolkit_folders(variables: Mapping[str, str]) -> list[str]:
    """The folders of PYTHONPATH that the CANN toolkit's set_env.sh put there.

    The compiler of its operators is imported from them, and no package that is served may lie in them.
    """
    said = (Path(variables[name]) for name in _TOOLKIT_HOMES if variables.get(name))
    places = [one.resolve() for one in (DEFAULT_TOOLKIT.parents[1], *said)]
    found = []
    for entry in filter(None, variables.get("PYTHONPATH", "").split(os.pathsep)):
        hides = any((Path(entry) / name.replace("-", "_")).exists() for name in PACKAGES)
        if not hides and any(Path(entry).resolve().is_relative_to(place) for place in places):
            found.append(entry)
    return found


def _cann_version(text: str) -> str | None:
    """``version=8.3.RC1`` of an install.info, ``toolkit_running_version=[7.8:8.3.RC1]`` of a version.cfg."""
    match = re.search(r"^(?:toolkit_running_|toolkit_installed_)?version\s*=\s*(.+)$", text, re.MULTILINE)
    return match[1].strip().strip("[]").split(":")[-1].split("]")[0] if match else None
