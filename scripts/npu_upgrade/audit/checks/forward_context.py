"""The rules for forward contexts, graph wrappers and buffers in NPU code, read from vllm-ascend's runner."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.world import ASCEND, World
from npu_upgrade.code.signatures import Function, is_bound, misfit, signature
from npu_upgrade.code.walk import last_name, walk
from npu_upgrade.program.program import ClassSymbol, File, Method

ABOUT = "forward contexts, graph wrappers and buffers that differ from how vllm-ascend's own runner does it"

_ASCEND = "vllm-ascend"
_BUFFER = "_make_buffer"
_INCIDENTS = {
    "upstream-name": ("A", "vllm-omni #4310"),
    "no-context": ("S", "vllm-omni #1114"),
    "context-argument": ("S", "vllm-omni #1114"),
    "buffer": ("S", "vllm-omni #2823"),
    "platform-call": ("S", "vllm-omni #6204"),
}
_NO_CONTEXT = "the model's layers read the forward context and find none, or that of another pass"
_KEYWORD = "vllm-ascend's layers read it from the context, and find the default instead"
_OWN = "vllm-ascend's runner works with its own; vLLM's lacks what its layers and kernels read"
_ARGUMENTS = "the call raises TypeError on an NPU"
_BUFFERS = "what reads the buffer expects the other form"


def check(world: World) -> Iterator[Finding]:
    if not world.of_omni:
        return
    runners = _ascend_runners(world)
    for file in world.worker_files:
        yield from _upstream_names(file, runners)
    for cls in world.classes:
        for method in cls.methods.values():
            if reference := _reference(cls, method.name):
                yield from _outside(cls, method, reference)
                yield from _keywords(cls, method, reference)
        yield from _buffers(cls)
    yield from _through_platform(world)


def _ascend_runners(world: World) -> list[File]:
    """The files of the vllm-ascend classes that NPU classes derive from."""
    bases = {b.file.path: b.file for cls in world.classes for b in cls.mro if b.project == _ASCEND}
    return list(bases.values())


def _reference(cls: ClassSymbol, name: str) -> Method | None:
    """vllm-ascend's method of this name among the bases."""
    found = (base.methods[name] for base in cls.mro[1:] if base.project == _ASCEND and name in base.methods)
    return next(found, None)


def _upstream_names(file: File, runners: list[File]) -> Iterator[Finding]:
    """Names of vLLM where vllm-ascend's runner takes its own."""
    own = {plain: (name, runner) for runner in runners for plain, name in replaced_in(runner).items()}
    for bound, items in (file.imports | file.local_imports).items():
        for item in items:
            if item.name not in own or item.module.partition(".")[0] != "vllm":
                continue
            used = [node for node in _instances(file) if node.id == bound]
            name, runner = own[item.name]
            if used:
                yield _finding(
                    "upstream-name",
                    _scope(file, used[0]),
                    item.name,
                    f"{item.name} is vLLM's; vllm-ascend's runner works with {name}",
                    side(file, used[0], f"{item.module}.{item.name}"),
                    side(runner, text=name),
                    _OWN,
                    f"use {name}",
                )


def _instances(file: File) -> Iterator[ast.Name]:
    """Names that are called, or asked for by ``isinstance``; methods taken from a class are meant so."""
    for node in file.nodes:
        if not isinstance(node, ast.Call):
            continue
        asks = isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        yield from (name for name in (node.args[1:] if asks else [node.func]) if isinstance(name, ast.Name))


def _outside(cls: ClassSymbol, method: Method, reference: Method) -> Iterator[Finding]:
    """Forward calls outside a context that vllm-ascend makes inside one."""
    theirs = list(calls_on_self(reference.node))
    inside = {one.name for one in theirs if one.inside} - {one.name for one in theirs if not one.inside}
    for one in calls_on_self(method.node):
        forward = "forward" in one.name or cls.lookup(one.name) is None
        if one.name in inside and forward and not one.inside:
            there = next(other for other in theirs if other.name == one.name)
            yield _finding(
                "no-context",
                method.owner.name,
                f"{method.name}: {one.name}",
                f"{method.qualname} calls self.{one.name} outside a forward context",
                side(method, one.node, f"self.{one.name}(...)"),
                side(reference, there.node, "inside a forward context"),
                _NO_CONTEXT,
                "put the call inside the same with statement as vllm-ascend does",
            )


def _keywords(cls: ClassSymbol, method: Method, reference: Method) -> Iterator[Finding]:
    """Arguments that vllm-ascend gives its forward context and the copy does not."""
    for theirs in context_calls(reference.node):
        name = last_name(theirs.func)
        ours = [call for call in context_calls(method.node) if last_name(call.func) == name]
        given = {keyword.arg for call in ours for keyword in call.keywords}
        if not ours or None in given:
            continue
        for keyword in theirs.keywords:
            if keyword.arg and keyword.arg not in given and len(theirs.args) <= len(ours[0].args):
                yield _finding(
                    "context-argument",
                    method.owner.name,
                    f"{method.name}: {keyword.arg}",
                    f"{method.qualname} gives {name} no {keyword.arg}, as {reference.qualname} does",
                    side(method, ours[0], f"{name}(...)"),
                    side(reference, keyword.value, f"{keyword.arg}={ast.unparse(keyword.value)}"),
                    _KEYWORD,
                    f"give {keyword.arg} as well",
                )


def _buffers(cls: ClassSymbol) -> Iterator[Finding]:
    """Buffers that vllm-ascend, or vLLM below it, makes in another form."""
    for name, places in cls.assigned.items():
        for method, node in places:
            call = _buffer_call(node)
            theirs = _upstream_buffers(cls, name) if call else []
            if call and theirs and not any(_form(other) == _form(call) for _, other in theirs):
                maker, other = theirs[0]
                yield _finding(
                    "buffer",
                    cls.name,
                    name,
                    f"self.{name} is made with {_form(call)}, by {maker.owner.name} with {_form(other)}",
                    side(method, call, f"self.{name}"),
                    side(maker, other, f"self.{name}"),
                    _BUFFERS,
                    f"make it as {maker.owner.name} does",
                )


def _upstream_buffers(cls: ClassSymbol, name: str) -> list[tuple[Method, ast.Call]]:
    """How the first class below vllm-omni that sets an attribute makes it, where it makes a buffer."""
    owner = next((b for b in cls.mro[1:] if b.project != "vllm-omni" and name in b.assigned), None)
    places = owner.assigned[name] if owner else []
    return [(method, call) for method, node in places if (call := _buffer_call(node))]


def _buffer_call(node: ast.stmt) -> ast.Call | None:
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    return value if isinstance(value, ast.Call) and last_name(value.func) == _BUFFER else None


def _form(call: ast.Call) -> str:
    """How many dimensions a buffer has, and its keywords."""
    words = sorted(f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in call.keywords)
    return ", ".join([f"{len(call.args)} dimensions", *words])


def _through_platform(world: World) -> Iterator[Finding]:
    """Calls in vllm-omni's methods of NPU classes that do not fit the platform, or a class it hands out."""
    platform = _npu_platform(world)
    owners = (base for cls in world.concrete for base in cls.mro if base.project == "vllm-omni")
    methods = {id(method.node): method for base in owners for method in base.methods.values()}
    for method in methods.values():
        for node, target in _platform_calls(method, platform) if platform else ():
            if reason := misfit(node, target.node, bound=is_bound(target.node)):
                yield _finding(
                    "platform-call",
                    method.owner.name,
                    f"{method.name}: {target.qualname}",
                    f"{method.qualname} calls {target.qualname}, which {reason}",
                    side(method, node, ast.unparse(node.func)),
                    side(target, text=signature(target.node)),
                    _ARGUMENTS,
                    "make the call fit on every platform, or take the argument in the NPU platform",
                )


def _scope(file: File, node: ast.Name) -> str:
    for cls in file.classes.values():
        if cls.node.lineno <= node.lineno <= (cls.node.end_lineno or 0):
            return cls.name
    return ""


def _finding(
    kind: str, owner: str, subject: str, what: str, here: Side, there: Side, why: str, todo: str
) -> Finding:
    incident, like = _INCIDENTS[kind]
    return Finding(kind, owner, subject, what, here, there, incident, why, todo, like)


_SETS = re.compile(r"set_(\w+_)?forward_context")


@dataclass(frozen=True)
class Forward:
    """A call of ``self.NAME(...)``, and whether a forward context is set around it."""

    name: str
    node: ast.Call
    inside: bool


def context_calls(method: Function) -> list[ast.Call]:
    """The calls in a method that set a forward context."""
    return [node for node in walk(method) if isinstance(node, ast.Call) and sets_context(node)]


def sets_context(node: ast.Call) -> bool:
    return _SETS.fullmatch(last_name(node.func)) is not None


def calls_on_self(method: Function) -> Iterator[Forward]:
    """The calls of ``self.NAME(...)`` in the order of the text."""
    yield from _calls(method.body, False)


def _calls(nodes: list[ast.stmt] | list[ast.AST], inside: bool) -> Iterator[Forward]:
    for node in nodes:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            items = [item.context_expr for item in node.items]
            sets = any(isinstance(n, ast.Call) and sets_context(n) for item in items for n in walk(item))
            yield from _calls([*items], inside)
            yield from _calls(node.body, inside or sets)
        else:
            if isinstance(node, ast.Call) and (name := _on_self(node)):
                yield Forward(name, node, inside)
            yield from _calls(list(ast.iter_child_nodes(node)), inside)


def _on_self(node: ast.Call) -> str:
    func = node.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
        return func.attr
    return ""


_PLATFORM = "current_omni_platform"


def _npu_platform(world: World) -> ClassSymbol | None:
    return next((cls for cls in world.side.classes if cls.name.endswith("OmniPlatform")), None)


def _platform_calls(method: Method, platform: ClassSymbol) -> Iterator[tuple[ast.Call, Method]]:
    handed: dict[str, Method] = {}
    for node in walk(method.node):
        if isinstance(node, ast.Assign) and (getter := _of_platform(node.value, platform)):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            handed |= {name: made for name in names if (made := _constructor(getter))}
    for node in walk(method.node):
        if not isinstance(node, ast.Call):
            continue
        target = _of_platform(node, platform)
        if target is None and isinstance(node.func, ast.Name):
            target = handed.get(node.func.id)
        if target:
            yield node, target


def _of_platform(node: ast.expr, platform: ClassSymbol) -> Method | None:
    """The NPU platform's method that ``current_omni_platform.NAME(...)`` calls."""
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == _PLATFORM:
        return platform.lookup(func.attr)
    return None


def _constructor(getter: Method) -> Method | None:
    """The constructor of the class that a method returns."""
    returned = [node.value for node in walk(getter.node) if isinstance(node, ast.Return) and node.value]
    classes = [getter.owner.file.resolve(value) for value in returned if isinstance(value, ast.Name)]
    found = [cls for cls in classes if isinstance(cls, ClassSymbol)]
    return found[0].lookup("__init__") if len(found) == 1 else None


_MARKS = re.compile(r"ascend_|_ascend|_npu|npu_|Ascend|NPU")


def replaced_in(file: File) -> dict[str, str]:
    """The names of vLLM that a file of vllm-ascend takes vllm-ascend's own for: plain -> ``module.name``.

    ``set_ascend_forward_context`` stands for ``set_forward_context``. A name that the file
    takes from vLLM as well is not replaced.
    """
    items = [item for many in file.imports.values() for item in many if item.name]
    taken = {item.name for item in items if item.module.partition(".")[0] == "vllm"}
    found = {}
    for item in items:
        plain = plain_name(item.name or "")
        if item.module.startswith(f"{ASCEND}.") and plain != item.name and plain not in taken:
            found[plain] = f"{item.module}.{item.name}"
    return found


def plain_name(name: str) -> str:
    """A name without what marks it as vllm-ascend's; a graph wrapper with vLLM's mark instead."""
    return _MARKS.sub("", name.replace("ACLGraph", "CUDAGraph"))
