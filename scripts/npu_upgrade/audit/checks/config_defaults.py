"""Settings that NPU code reads and whose default another version changed, renamed or removed."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import plain_text
from npu_upgrade.code.walk import last_name, walk
from npu_upgrade.ground.tables import cut
from npu_upgrade.program.live import live_statements
from npu_upgrade.program.program import ClassSymbol, File, Program

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
    reads, own = _reads(world), set(world.side.paths)
    for key, old in before.items():
        places = [read for read in reads.get(old.name, []) if _fits(read.receiver, old)]
        new = after.get(key)
        # What only vllm-ascend's own code reads is for vllm-ascend to decide.
        places = [read for read in places if read.file.path in own]
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
    for file in _files(world):
        for live in live_statements(file.tree, lambda node: True):
            for node in live.expressions():
                if isinstance(node, ast.Attribute) and (receiver := _receiver(node.value)):
                    found.setdefault(node.attr, []).append(_Read(file, node, live.scope, receiver))
    return found


def _files(world: World) -> list[File]:
    audited = world.files if world.of_omni else [*world.worker_files, *_named(world, "platform.py")]
    bases = {base.file.path: base.file for cls in world.classes for base in cls.mro if base.project != "vllm"}
    return list({file.path: file for file in [*audited, *bases.values()]}.values())


def _named(world: World, name: str) -> list[File]:
    file = world.program.file(f"{world.plugin}/{name}")
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
        else f"defaults to {cut(new.default, _LONG)}, was {cut(old.default, _LONG)}"
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
        side(cls, text=f"{cls.name} has no {old.name}"),
        "reading it raises AttributeError, setting it does nothing",
        f"use {renamed}" if renamed else "find what took its place, or drop it",
    )


def _finding(
    kind: str, setting: Setting, what: str, read: _Read, there: Side, why: str, todo: str
) -> Finding:
    return Finding(
        kind=kind,
        owner=setting.owner,
        subject=setting.name,
        what=what,
        here=side(read.file, read.node, ast.unparse(read.node)),
        there=there,
        incident="V",
        why=why,
        todo=todo,
        like="vllm-tt-plugin #48",
    )


def _replaced(world: World, setting: Setting) -> str:
    """The patch of vllm-ascend that puts its own in place of a setting, empty without one."""
    pattern = re.compile(rf"\b{setting.owner}\.{setting.name}\s*=(?!=)")
    files = world.program.files(f"{world.plugin}/patch") if setting.owner else ()
    return next((file.path for file in files if pattern.search(file.source)), "")


def _difference(old: Setting, new: Setting) -> str:
    """Both defaults, or the first lines that differ in what decides."""
    if not new.derived:
        return f"{cut(new.default, _LONG)} (was {cut(old.default, _LONG)})"
    lines = list(difflib.ndiff(old.default.split("\n"), new.default.split("\n")))
    sides = (next((line[2:].strip() for line in lines if line.startswith(sign)), "") for sign in "+-")
    now, was = (cut(side, _LONG) for side in sides)
    return "; ".join(part for part in (f"now: {now}" if now else "", f"was: {was}" if was else "") if part)


def _where(places: list[_Read]) -> str:
    first = places[0]
    more = f" and {len(places) - 1} more places" if len(places) > 1 else ""
    return f"read in {first.scope or first.file.path}{more}"


def _full(setting: Setting) -> str:
    return f"{setting.owner}.{setting.name}" if setting.owner else setting.name


ENVIRONMENTS = ("vllm/envs.py", "vllm_ascend/envs.py")
_PLACES = ("vllm/config", "vllm_ascend/ascend_config.py")
_PROPERTIES = {"property", "cached_property"}
_SWITCH = re.compile(r"(use|is|enable|has|should|needs?|supports?)_")
_DEPTH = 3


@dataclass(frozen=True)
class Setting:
    """One setting: the class it belongs to (empty: an environment variable) and its default as text.

    The default of a ``derived`` one is the text of all that decides it.
    """

    owner: str
    name: str
    default: str
    side: Side
    derived: bool = False

    @property
    def receiver(self) -> str:
        """What objects of its class are called: ``CacheConfig`` -> ``cache_config``."""
        return snake(self.owner) if self.owner else "envs"


def settings(program: Program) -> dict[tuple[str, str], Setting]:
    """All settings by class and name."""
    found = [setting for cls in config_classes(program).values() for setting in _of_class(cls)]
    found += [
        setting for path in ENVIRONMENTS if (file := program.file(path)) for setting in _variables(file)
    ]
    return {(setting.owner, setting.name): setting for setting in reversed(found)}


def config_classes(program: Program) -> dict[str, ClassSymbol]:
    """The config classes of vLLM and vllm-ascend by name."""
    files = [file for place in _PLACES for file in program.files(place)]
    files += [file] if (file := program.file("vllm/config.py")) else []
    return {name: cls for file in reversed(files) for name, cls in file.classes.items()}


def snake(name: str) -> str:
    """``EPLBConfig`` and ``EplbConfig`` -> ``eplb_config``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _of_class(cls: ClassSymbol) -> Iterator[Setting]:
    for name, node in cls.fields.items():
        if (
            isinstance(node, ast.AnnAssign)
            and node.value is not None
            and "ClassVar" not in ast.unparse(node.annotation)
        ):
            yield _setting(cls, name, _default(node.value, cls.file), node)
    for name, places in cls.assigned.items():
        for _, node in places:
            if isinstance(value := _asked(node), ast.Constant):
                yield _setting(cls, name, ast.unparse(value), node)
    for name, method in cls.methods.items():
        if _SWITCH.match(name) and _PROPERTIES & set(map(last_name, method.node.decorator_list)):
            text = "\n".join(_deciding(cls, name, set(), _DEPTH))
            yield _setting(cls, name, text, method.node, derived=True)


def _setting(cls: ClassSymbol, name: str, default: str, node: ast.stmt, derived: bool = False) -> Setting:
    text = f"{name} is decided here" if derived else f"{name} = {default}"
    return Setting(cls.name, name, default, side(cls.file, node, text), derived)


def _default(value: ast.expr, file: File) -> str:
    """The default a field has: ``Field(default=x)`` and a constant of the module count as their value."""
    if isinstance(value, ast.Call) and last_name(value) in ("field", "Field"):
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        inner = given.get("default") or given.get("default_factory") or next(iter(value.args), None)
        return _default(inner, file) if inner is not None else ""
    if isinstance(value, ast.Lambda):
        value = value.body
    statement = file.values.get(value.id) if isinstance(value, ast.Name) else None
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and isinstance(statement.value, ast.Constant):
        return ast.unparse(statement.value)
    return ast.unparse(value)


def _asked(node: ast.stmt) -> ast.expr | None:
    """The default of ``self.x = given.get("x", default)``."""
    calls = [inner for inner in walk(node) if isinstance(inner, ast.Call)]
    gets = [
        c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "get" and len(c.args) == 2
    ]
    return gets[0].args[1] if len(gets) == 1 else None


def _deciding(cls: ClassSymbol, name: str, seen: set[str], depth: int) -> Iterator[str]:
    """The texts of a method, of the methods of its class it uses, and of the constants they read."""
    method = cls.lookup(name)
    if method is None or name in seen or not depth:
        return
    seen.add(name)
    yield plain_text(method.node).replace("@cached_property", "@property")
    constants = method.owner.file.values
    for node in walk(method.node):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            if node.attr.startswith("_") or _SWITCH.match(node.attr):
                yield from _deciding(cls, node.attr, seen, depth - 1)
        elif isinstance(node, ast.Name) and node.id.isupper() and node.id in constants.keys() - seen:
            seen.add(node.id)
            yield ast.unparse(constants[node.id])


def _variables(file: File) -> Iterator[Setting]:
    """Environment variables: entries of dicts whose values are functions of no arguments."""
    declared = {name: node for name, node in file.values.items() if isinstance(node, ast.AnnAssign)}
    for node in file.values.values():
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        for key, entry in zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else []:
            if isinstance(key, ast.Constant) and isinstance(entry, (ast.Lambda, ast.Call)):
                name, stated = str(key.value), declared.get(str(key.value))
                default = stated.value if stated and stated.value else _fallback(entry)
                text = ast.unparse(default)
                yield Setting("", name, text, side(file, key, f"{name} defaults to {text}"))


def _fallback(entry: ast.expr) -> ast.expr:
    """What ``os.getenv(name, fallback)`` falls back to, the whole entry where that cannot be told."""
    for node in walk(entry):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("getenv", "environ.get")):
            return node.args[1] if len(node.args) > 1 else ast.Constant(None)
    return entry
