"""Vendor-only packages that cannot be installed here: they import, and say their name when used.

A module of the list below is made only when the environment does not have it. Any attribute exists; to call
one is a missing reference, so the verdict of the run is INCONCLUSIVE and names it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType

from npu_emulator import record
from npu_emulator.problems import MissingReference

PACKAGES = ("fla_npu", "acl", "mooncake", "memcache_hybrid", "memfabric_hybrid", "te", "tbe", "mindie_turbo")


class _Absent:
    """An attribute of an absent package: importable, usable as a decorator or base, refused when called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> _Absent:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _Absent(f"{self._name}.{attribute}")

    def __call__(self, *arguments, **options):
        record.note("missing", name=self._name, caller=record.caller())
        raise MissingReference(f"npu_emulator: the vendor package of {self._name} is not available here")

    def __mro_entries__(self, bases):
        return (type(self._name.rpartition(".")[2], (), {"__init__": self.__call__}),)


class _Module(ModuleType):
    def __getattr__(self, attribute: str):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _Absent(f"{self.__name__}.{attribute}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked after every other finder: a package that is installed is used as it is."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def install() -> None:
    """Make the absent vendor packages importable."""
    sys.meta_path.append(_Finder())
