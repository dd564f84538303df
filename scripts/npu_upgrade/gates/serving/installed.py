"""What the serving interpreter would import, and from where, found without importing any of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from npu_upgrade.ground.errors import Blocked

PACKAGES = ("vllm", "vllm-ascend", "vllm-omni", "torch", "torch-npu", "transformers", "ray", "lm-eval")
_PROBE = """
import importlib.metadata, importlib.util, json, sys
names = json.loads(sys.argv[1])
versions, imports = {}, {}
for name in names:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        spec = importlib.util.find_spec(name.replace("-", "_"))
    except (ImportError, ValueError):
        spec = None
    if spec and (spec.origin or spec.submodule_search_locations):
        imports[name.replace("-", "_")] = spec.origin or list(spec.submodule_search_locations)[0]
adapters = {}
for one in importlib.metadata.entry_points(group="vllm.general_plugins"):
    top = one.value.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(top) if top not in imports else None
    except (ImportError, ValueError):
        spec = None
    if spec and spec.submodule_search_locations:
        adapters[top] = list(spec.submodule_search_locations)[0]
plugins = sorted(
    f"{one.name} = {one.value}"
    for group in ("vllm.platform_plugins", "vllm.general_plugins")
    for one in importlib.metadata.entry_points(group=group)
)
found = {"python": sys.version.split()[0], "versions": versions, "imports": imports}
print(json.dumps(found | {"plugins": plugins, "adapters": adapters}))
"""


@dataclass(frozen=True)
class Installed:
    """``versions``: distribution -> version; ``imports``: package -> the file or folder it comes from.

    ``adapters``: package -> folder of the plugins that others than vLLM's own projects registered.
    """

    python: str
    versions: dict[str, str]
    imports: dict[str, str]
    plugins: list[str]
    adapters: dict[str, str] = field(default_factory=dict)

    def folder(self, package: str) -> Path | None:
        """The folder of an importable package."""
        origin = self.imports.get(package)
        if origin is None:
            return None
        path = Path(origin)
        return path.parent if path.suffix else path


def probe(python: Path, variables: Mapping[str, str], cwd: Path) -> Installed:
    """Ask ``python``; raises :class:`Blocked` when it does not answer or has no vLLM."""
    try:
        done = subprocess.run(
            [str(python), "-P", "-c", _PROBE, json.dumps(PACKAGES)],
            env=dict(variables),
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=120,
        )
        found = Installed(**json.loads(done.stdout)) if done.returncode == 0 else None
        why = done.stderr.strip().rpartition("\n")[2]
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        found, why = None, str(error)
    if found is None or "vllm" not in found.imports:
        raise Blocked(
            f"{python} has no vllm" if found else f"{python} does not run: {why}",
            expected="an interpreter, 3.11 or newer, that vllm (and on an NPU vllm-ascend) is installed for",
            try_="--python /path/to/python, or --python cpu for this project's own vLLM on the CPU",
        )
    return found


def misplaced(installed: Installed, roots: Mapping[str, Path]) -> list[str]:
    """Packages that would not be imported from below the root they are expected in."""
    wrong = []
    for package, root in roots.items():
        folder = installed.folder(package)
        if folder is None:
            wrong.append(f"{package} is not installed, expected from {root}")
        elif not folder.resolve().is_relative_to(root.resolve()):
            wrong.append(f"{package} is imported from {folder}, expected from {root}")
    return wrong
