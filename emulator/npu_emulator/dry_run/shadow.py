"""Take modules from other files than the installed ones: how seeded defects share one warm process."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from npu_emulator.problems import EmulatorFault


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the shadowed modules, by full name."""

    def __init__(self, files: dict[str, Path]) -> None:
        self._files = files

    def find_spec(self, fullname, path=None, target=None):
        file = self._files.get(fullname)
        if file is None:
            return None
        # As the installed file, so that the module is a package where that one is, and knows its folder.
        folders = [str(Path(entry) / fullname.rpartition(".")[2]) for entry in path or ()]
        package = folders if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(fullname, file, submodule_search_locations=package)


def shadow(packages: dict[str, str]) -> None:
    """Import modules of ``packages`` (name -> folder) from those folders, where they have them, from now on.

    Raises :class:`EmulatorFault` when one of them was imported before: it would not be replaced.
    """
    files = dict(_modules(packages))
    early = sorted(name for name in files if name in sys.modules)
    if early:
        raise EmulatorFault(f"{', '.join(early)} was imported before it could be shadowed")
    if files:
        sys.meta_path.insert(0, _Finder(files))


def _modules(packages: dict[str, str]) -> Iterator[tuple[str, Path]]:
    for package, folder in packages.items():
        for file in sorted(Path(folder).rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            names = parts[:-1] if parts[-1] == "__init__" else parts
            yield ".".join((package, *names)), file
