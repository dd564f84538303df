"""CUDA by name in NPU code, and in the code that NPU classes inherit or call.

``torch.cuda`` names that vllm-ascend puts torch_npu's own in place of (read from its tree) are no
findings in inherited code; written in omni's NPU code they are a lesser kind. A class or function of
vLLM with CUDA in its name is one where vllm-ascend has its own in its place, or never uses it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.world import ASCEND, World, on_npu_side
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import dotted, last_name, string, walk
from npu_upgrade.ground.held import held
from npu_upgrade.program.facts import effective
from npu_upgrade.program.places import definitions, imports_binding
from npu_upgrade.program.program import File, Program

ABOUT = "CUDA names in NPU code and in what it inherits or calls, where vllm-ascend does not redirect them"

_ASCEND = "vllm-ascend"
_CUDA = re.compile(r"cuda|nccl|flash_?attn|pynvml|nvtx", re.IGNORECASE)
_WHY = {
    "call": "torch without CUDA raises here, or does nothing, and vllm-ascend does not redirect the name",
    "device": "there is no such device on an NPU host: the call raises",
    "test": "false for a tensor on an NPU, which then is treated as if it were on the CPU",
    "redirected": "works only after vllm-ascend's runner has put torch.npu's own under this name",
    "name": "made for CUDA; vllm-ascend has its own in its place, or does without",
}
_TODO = {
    "call": "use the torch.npu or current_omni_platform counterpart",
    "device": "use self.device or the platform's device type",
    "redirected": "write torch.npu, or use the current_omni_platform counterpart",
    "test": "ask for the CPU instead (device.type != 'cpu'), or ask the platform",
}


@dataclass(frozen=True)
class _Place:
    """A function or block of a file; ``owner`` is the class or function that findings name."""

    file: File
    owner: str
    body: list[ast.stmt]
    through: str = ""


def check(world: World) -> Iterator[Finding]:
    if world.plugin != ASCEND:  # what the device of another plugin makes of them is not known
        return
    safe = _redirected(world)
    if "*" in safe:  # transfer_to_npu redirects all of it
        return
    for place in _places(world):
        for use in cuda_uses(place.body):
            if use.kind != "call" or use.name.partition(".")[0] not in safe:
                yield _finding(place, use, use.kind)
            elif world.of_omni and not place.through:
                yield _finding(place, use, "redirected")
    for file in world.files if world.of_omni else world.worker_files:
        yield from _names(world, file)


def _redirected(world: World) -> set[str]:
    """The names below ``torch.cuda`` that the given vllm-ascend replaces; ``*`` for all."""
    found: set[str] = set()
    for path in _replacing(world):
        text = world.triple.ascend.read(path)
        if re.search(r"^\s*(from|import)\s.*\btransfer_to_npu\b", text, re.MULTILINE):
            return {"*"}
        if "torch.cuda." in text and (file := world.program.file(path)):
            found |= set(redirected(file.tree))
    return found


def _replacing(world: World) -> set[str]:
    """The files of vllm-ascend that run with the audited classes: their bases, what those import, patches."""
    tree = world.triple.ascend
    bases = {b.file.path: b.file for cls in world.classes for b in cls.mro if b.project == _ASCEND}
    modules = {item.module for file in bases.values() for items in file.imports.values() for item in items}
    folders = [module.replace(".", "/") for module in modules if module.startswith(ASCEND)]
    imported = [path for name in folders for path in (f"{name}.py", f"{name}/__init__.py")]
    patches = [path for path in tree.list(f"{ASCEND}/patch") if path.endswith(".py")]
    return {*bases, *(path for path in imported if tree.exists(path)), *patches}


def _places(world: World) -> Iterator[_Place]:
    for file in world.files if world.of_omni else world.worker_files:
        yield from _of_file(file)
    if world.of_omni:
        yield from _inherited(world)


def _of_file(file: File) -> Iterator[_Place]:
    """The functions of a file, each with its name, and its top level."""
    top: list[ast.stmt] = []
    for node in file.tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for item in inner:
            if isinstance(item, Function):
                name = f"{node.name}.{item.name}" if isinstance(node, ast.ClassDef) else item.name
                yield _Place(file, name, [item])
            else:
                top.append(item)
    yield _Place(file, "", top)


def _inherited(world: World) -> Iterator[_Place]:
    """What NPU classes run of vllm-omni's other files, each function once."""
    seen: set[int] = set()
    for cls in world.concrete:
        side = effective(cls)
        for method in side.own.values():
            for identity, reached in side.reach(method).items():
                file = reached.file
                if identity in seen or file.project != "vllm-omni" or on_npu_side(file):
                    continue
                seen.add(identity)
                owner = f"{reached.owner.name}.{reached.name}" if reached.owner else reached.name
                yield _Place(file, owner, reached.node.body, f"{cls.name}.{method.name}")


def _finding(place: _Place, use: Use, kind: str) -> Finding:
    text = f"torch.cuda.{use.name}" if use.kind == "call" else ast.unparse(use.node)
    where = f"NPU classes run this through {place.through}" if place.through else "in NPU code"
    return Finding(
        kind=f"inherited-{kind}" if place.through else kind,
        owner=place.owner,
        subject=f"torch.cuda.{use.name}" if use.kind == "call" else use.name,
        what=f"{text} in {place.owner or place.file.path}; {where}",
        here=side(place.file, use.node, text),
        there=None,
        incident="A",
        why=_WHY[kind],
        todo=_TODO[kind],
        like="vllm-omni #4310",
    )


def _names(world: World, file: File) -> Iterator[Finding]:
    """Classes and functions of vLLM that are made for CUDA."""
    for bound, items in (file.imports | file.local_imports).items():
        for item in items:
            if item.name is None or not _CUDA.search(item.name) or item.module.startswith(ASCEND):
                continue
            if item.module.partition(".")[0] in world.program.trees and _is_cudas(world.program, item.name):
                yield _name_finding(world.program, file, bound, f"{item.module}.{item.name}")


def _is_cudas(program: Program, name: str) -> bool:
    """Whether vllm-ascend has its own version of a class, or never uses it."""
    if counterpart(program, name):
        return True
    if not any(character.isupper() for character in name):
        return False
    return not imports_binding(program, ASCEND, name)


def _name_finding(program: Program, file: File, bound: str, name: str) -> Finding:
    used = [n for n in file.nodes if isinstance(n, ast.Name) and n.id == bound]
    last = name.rpartition(".")[2]
    other = counterpart(program, last)
    line = (
        used[0].lineno
        if used
        else next((i for i, t in enumerate(file.source.split("\n"), 1) if last in t), 0)
    )
    return Finding(
        kind="name",
        owner=method.qualname if (method := file.method_at(line)) and used else "",
        subject=name,
        what=f"{last} is made for CUDA" + (f"; vllm-ascend has {other}" if other else ""),
        here=side(file, line, bound),
        there=_side(program, other),
        incident="A",
        why=_WHY["name"],
        todo=f"use {other}" if other else "use what vllm-ascend's own runner uses here",
        like="vllm-omni #4310",
    )


def _side(program: Program, name: str) -> Side | None:
    module, _, last = name.rpartition(".")
    file = program.module(module) if module else None
    cls = file.classes.get(last) if file else None
    return side(cls, text=last) if cls else None


# They work, and say that there is no CUDA, wherever torch was built without it.
_HARMLESS = {"is_available", "is_initialized", "device_count", "is_current_stream_capturing"}
_DEVICE_ARGUMENTS = {"device", "device_type", "backend", "map_location"}
_DEVICE_CALLS = {"device", "to", "init_process_group", "new_group", "autocast", "Generator"}
_BACKENDS = {"nccl"}
_LEAVES = (ast.Return, ast.Raise, ast.Continue)


@dataclass(frozen=True)
class Use:
    """One use: ``kind`` is ``call`` (``torch.cuda.NAME``), ``device`` or ``test``; ``name`` what is used."""

    kind: str
    name: str
    node: ast.expr


def cuda_uses(body: Sequence[ast.stmt]) -> Iterator[Use]:
    """The uses in a block that run without CUDA, in the order of the text."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _branches(node)
            if _is_for_cuda(node.test) is False and isinstance(node.body[-1], _LEAVES):
                return  # what follows runs on CUDA only
            continue
        yield from _in_expressions(_own(node))
        if isinstance(node, ast.Assert) and _is_for_cuda(node.test):
            return
        for block in _blocks(node):
            yield from cuda_uses(block)


def redirected(tree: ast.AST) -> Iterator[str]:
    """The names below ``torch.cuda`` that a file replaces: ``torch.cuda.NAME = ...``."""
    for node in walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else []:
            name = dotted(target)
            if name.startswith("torch.cuda."):
                yield name.removeprefix("torch.cuda.")


def _branches(node: ast.If) -> Iterator[Use]:
    outcome = _is_for_cuda(node.test)
    yield from _in_expressions([node.test])
    if outcome is not True:
        yield from cuda_uses(node.body)
    if outcome is not False:
        yield from cuda_uses(node.orelse)


def _is_for_cuda(test: ast.expr) -> bool | None:
    """Whether a condition holds on CUDA only (True), or anywhere else only (False)."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _is_for_cuda(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        inner = [_is_for_cuda(value) for value in test.values]
        wanted = isinstance(test.op, ast.And)
        return wanted if wanted in inner else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and _names_cuda(test.comparators[0]):
        if isinstance(test.ops[0], (ast.Eq, ast.In, ast.Is)):
            return True
        return False if isinstance(test.ops[0], (ast.NotEq, ast.NotIn, ast.IsNot)) else None
    func = test.func if isinstance(test, ast.Call) else test
    name = last_name(func)
    return True if name.startswith("is_cuda") or dotted(func).startswith("torch.cuda.is_") else None


def _in_expressions(nodes: Iterable[ast.AST]) -> Iterator[Use]:
    for top in nodes:
        if isinstance(top, ast.IfExp) and _is_for_cuda(top.test) is not None:
            yield from _in_expressions([top.test, top.orelse if _is_for_cuda(top.test) else top.body])
            continue
        if use := _use(top):
            yield use
            if use.kind == "call":
                continue
        if isinstance(top, ast.Call) and isinstance(top.func, ast.Attribute) and _asks_platform(top.func):
            yield from _in_expressions([top.func.value, *top.args])
        elif isinstance(top, ast.BoolOp) and isinstance(top.op, ast.And):
            yield from _in_expressions(_until_cuda(top.values))
        elif isinstance(top, ast.Lambda):
            yield from _in_expressions([top.body])
        else:
            yield from _in_expressions(_children(top))


def _asks_platform(func: ast.Attribute) -> bool:
    """``platform.is_cuda()`` asks a platform, ``tensor.is_cuda`` a tensor."""
    return func.attr.startswith("is_cuda")


def _until_cuda(values: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """The operands of an ``and`` that are looked at without CUDA."""
    for value in values:
        yield value
        if _is_for_cuda(value):
            return


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.arguments)):
            yield child


def _use(node: ast.AST) -> Use | None:
    if isinstance(node, ast.Attribute):
        name = dotted(node)
        if name.startswith("torch.cuda."):
            used = name.removeprefix("torch.cuda.")
            return None if used.partition(".")[0] in _HARMLESS else Use("call", used, node)
        if node.attr == "is_cuda":
            return Use("test", "is_cuda", node)
    if isinstance(node, ast.Compare) and len(node.comparators) == 1 and _names_cuda(node.comparators[0]):
        left = dotted(node.left)
        return Use("test", left or "device", node) if left.endswith((".type", "device_type")) else None
    if isinstance(node, ast.Call):
        return _device_use(node)
    return None


def _device_use(node: ast.Call) -> Use | None:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
    if name == "cuda" and isinstance(node.func, ast.Attribute) and dotted(node.func) != "torch.cuda":
        return Use("device", ".cuda()", node)
    given = [keyword.value for keyword in node.keywords if keyword.arg in _DEVICE_ARGUMENTS]
    if name in _DEVICE_CALLS:
        given += node.args
    return next((Use("device", _cuda_text(value), value) for value in given if _cuda_text(value)), None)


def _cuda_text(node: ast.expr) -> str:
    """The CUDA device or backend that a string names, empty when it names none."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    text = string(first)
    return text if text == "cuda" or text.startswith("cuda:") or text in _BACKENDS else ""


def _names_cuda(node: ast.expr) -> bool:
    items = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    return any(_cuda_text(item) for item in items)


def _own(node: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement that run with it: no annotations, decorators' arguments included."""
    if isinstance(node, Function):
        yield from [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]
    elif isinstance(node, ast.AnnAssign):
        yield from [node.value] if node.value else []
    elif isinstance(node, ast.Assign) and any(dotted(t).startswith("torch.cuda.") for t in node.targets):
        yield node.value
    elif not isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case))
        )


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(node, name, None):
            yield block
    for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield part.body


_NPU_WORDS = ("ACL", "Acl", "NPU", "Ascend")


@held
def counterpart(program: Program, name: str) -> str:
    """vllm-ascend's class in place of a CUDA or GPU class, as ``module.Class``; empty when there is none."""
    for word in _NPU_WORDS:
        wanted = re.sub(r"CUDA|Cuda|GPU", word, name)
        places = definitions(program, ASCEND, wanted) if wanted != name else []
        if places:
            return f"{places[0]}.{wanted}"
    return ""
