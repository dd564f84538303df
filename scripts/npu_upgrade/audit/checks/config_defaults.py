"""Settings that NPU code reads and whose default another version changed, renamed or removed."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.settings import Setting, config_classes, settings
from npu_upgrade.audit.world import ASCEND, World
from npu_upgrade.program.live import live_statements
from npu_upgrade.program.program import ClassSymbol, File
from npu_upgrade.program.version_guards import version_of

NAME = "config-defaults"
ABOUT = "defaults of settings that NPU code reads, changed, renamed or removed since the old pair"

_LONG = 60
_RUNNER = re.compile(r"model_runner|async_scheduling|worker")


@dataclass(frozen=True)
class _Read:
    """One place that reads or sets ``receiver.name``."""

    file: File
    node: ast.Attribute
    scope: str
    receiver: str


def check(world: World) -> Iterator[Finding]:
    if world.old is None:
        return
    before, after = settings(world.old.program), settings(world.program)
    classes = config_classes(world.program)
    reads = _reads(world)
    for key, old in before.items():
        places = [read for read in reads.get(old.name, []) if _fits(read.receiver, old)]
        new = after.get(key)
        if not places:
            continue
        if new is None:
            if old.owner in classes and not _still_has(classes[old.owner], old.name):
                yield _removed(old, places, classes[old.owner], before)
        elif new.default != old.default and new.default and old.default:
            replaced = _replaced(world, new)
            if not (replaced and _replaced(world.old, new)):  # as before, it is vllm-ascend's that counts
                yield _changed(old, new, places, replaced)


def _reads(world: World) -> dict[str, list[_Read]]:
    """What the audited files and the classes they build on read, by attribute."""
    found: dict[str, list[_Read]] = {}
    vllm = version_of(world.triple.vllm.version)
    for file in _files(world):
        for live in live_statements(file.tree, vllm, lambda node: True):
            for node in live.expressions():
                if isinstance(node, ast.Attribute) and (receiver := _receiver(node.value)):
                    found.setdefault(node.attr, []).append(_Read(file, node, live.scope, receiver))
    return found


def _files(world: World) -> list[File]:
    audited = world.files if world.of_omni else [*world.worker_files, *_named(world, "platform.py")]
    bases = {base.file.path: base.file for cls in world.classes for base in cls.mro if base.project != "vllm"}
    return list({file.path: file for file in [*audited, *bases.values()]}.values())


def _named(world: World, name: str) -> list[File]:
    file = world.program.file(f"{ASCEND}/{name}")
    return [file] if file else []


def _receiver(node: ast.expr) -> str:
    """The last name of what an attribute is read of, as configs are called."""
    if isinstance(node, ast.Call):
        return _receiver(node.func).removeprefix("get_")
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lstrip("_")


def _fits(receiver: str, setting: Setting) -> bool:
    if not setting.owner:
        return receiver.startswith("envs") or receiver.endswith("envs")
    return receiver == setting.receiver or receiver.endswith(f"_{setting.receiver}")


def _still_has(cls: ClassSymbol, name: str) -> bool:
    return any(name in one.fields or name in one.methods or name in one.assigned for one in cls.mro)


def _changed(old: Setting, new: Setting, places: list[_Read], replaced: str) -> Finding:
    kind = "derived-default" if new.derived else "default"
    said = f"; vllm-ascend replaces it in {replaced}" if replaced else ""
    how = (
        "is decided otherwise"
        if new.derived
        else f"defaults to {_short(new.default)}, was {_short(old.default)}"
    )
    return _finding(
        kind,
        new,
        f"{_full(new)} {how}; {_where(places)}{said}",
        places[0],
        replace(new.side, text=_difference(old, new)),
        "without a word from the user the code now takes another path"
        + (", on another runner or worker" if _RUNNER.search(new.name) else ""),
        "decide which value the NPU side wants, and set it where it must not follow the default",
    )


def _removed(
    old: Setting, places: list[_Read], cls: ClassSymbol, before: dict[tuple[str, str], Setting]
) -> Finding:
    known = {name for owner, name in before if owner == old.owner}
    fresh = [name for name in [*cls.fields, *cls.methods] if name not in known]
    words = set(old.name.split("_"))
    alike = max(fresh, key=lambda name: len(words & set(name.split("_"))), default="")
    shared = len(words & set(alike.split("_")))
    renamed = alike if alike and 2 * shared > max(len(words), len(alike.split("_"))) else ""
    hint = f"; {renamed} is new there" if renamed else ""
    return _finding(
        "removed",
        old,
        f"{_full(old)} is gone{hint}; {_where(places)}",
        places[0],
        Side(cls.project, cls.file.path, cls.node.lineno, f"{cls.name} has no {old.name}"),
        "reading it raises AttributeError, setting it does nothing",
        f"use {renamed}" if renamed else "find what took its place, or drop it",
    )


def _finding(
    kind: str, setting: Setting, what: str, read: _Read, there: Side, why: str, todo: str
) -> Finding:
    return Finding(
        check=NAME,
        kind=kind,
        owner=setting.owner,
        subject=setting.name,
        what=what,
        here=Side(read.file.project, read.file.path, read.node.lineno, ast.unparse(read.node)),
        there=there,
        incident="V",
        why=why,
        todo=todo,
        like="vllm-tt-plugin #48",
    )


def _replaced(world: World, setting: Setting) -> str:
    """The patch of vllm-ascend that puts its own in place of a setting, empty without one."""
    pattern = re.compile(rf"\b{setting.owner}\.{setting.name}\s*=(?!=)")
    files = world.program.files(f"{ASCEND}/patch") if setting.owner else ()
    return next((file.path for file in files if pattern.search(file.source)), "")


def _difference(old: Setting, new: Setting) -> str:
    """Both defaults, or the first lines that differ in what decides."""
    if not new.derived:
        return f"{_short(new.default)} (was {_short(old.default)})"
    lines = list(difflib.ndiff(old.default.split("\n"), new.default.split("\n")))
    sides = (next((line[2:].strip() for line in lines if line.startswith(sign)), "") for sign in "+-")
    now, was = map(_short, sides)
    return "; ".join(part for part in (f"now: {now}" if now else "", f"was: {was}" if was else "") if part)


def _where(places: list[_Read]) -> str:
    first = places[0]
    more = f" and {len(places) - 1} more places" if len(places) > 1 else ""
    return f"read in {first.scope or first.file.path}{more}"


def _full(setting: Setting) -> str:
    return f"{setting.owner}.{setting.name}" if setting.owner else setting.name


def _short(text: str) -> str:
    return text if len(text) <= _LONG else text[: _LONG - 3] + "..."
