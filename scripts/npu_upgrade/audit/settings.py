"""The settings of vLLM and vllm-ascend: fields of config classes, environment variables, what is derived."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.finding import Side
from npu_upgrade.code.signatures import plain_text
from npu_upgrade.code.walk import walk
from npu_upgrade.program.program import ClassSymbol, File, Program

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
        if _SWITCH.match(name) and _PROPERTIES & set(map(_decorator, method.node.decorator_list)):
            text = "\n".join(_deciding(cls, name, set(), _DEPTH))
            yield _setting(cls, name, text, method.node, derived=True)


def _setting(cls: ClassSymbol, name: str, default: str, node: ast.stmt, derived: bool = False) -> Setting:
    text = f"{name} is decided here" if derived else f"{name} = {default}"
    return Setting(cls.name, name, default, Side(cls.project, cls.file.path, node.lineno, text), derived)


def _default(value: ast.expr, file: File) -> str:
    """The default a field has: ``Field(default=x)`` and a constant of the module count as their value."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in ("field", "Field"):
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
                side = Side(file.project, file.path, key.lineno, f"{name} defaults to {ast.unparse(default)}")
                yield Setting("", name, ast.unparse(default), side)


def _fallback(entry: ast.expr) -> ast.expr:
    """What ``os.getenv(name, fallback)`` falls back to, the whole entry where that cannot be told."""
    for node in walk(entry):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("getenv", "environ.get")):
            return node.args[1] if len(node.args) > 1 else ast.Constant(None)
    return entry


def _decorator(node: ast.expr) -> str:
    return ast.unparse(node).partition("(")[0].rpartition(".")[2]
