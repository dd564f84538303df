"""CUDA by name in NPU code, and in the code that NPU classes inherit or call.

``torch.cuda`` names that vllm-ascend puts torch_npu's own in place of (read from its tree) are no
findings in inherited code; written in omni's NPU code they are a lesser kind. A class or function of
vLLM with CUDA in its name is one where vllm-ascend has its own in its place, or never uses it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.cuda import Use, cuda_uses, redirected
from npu_upgrade.audit.device_words import counterpart
from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.world import ASCEND, World, on_npu_side
from npu_upgrade.code.walk import walk
from npu_upgrade.program.effective import Effective
from npu_upgrade.program.places import imports_binding
from npu_upgrade.program.program import ClassSymbol, File, Program

ABOUT = "CUDA names in NPU code and in what it inherits or calls, where vllm-ascend does not redirect them"

_ASCEND = "vllm-ascend"
_CUDA = re.compile(r"cuda|nccl|flash_?attn|pynvml|nvtx", re.IGNORECASE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
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
            if isinstance(item, _FUNCTIONS):
                name = f"{node.name}.{item.name}" if isinstance(node, ast.ClassDef) else item.name
                yield _Place(file, name, [item])
            else:
                top.append(item)
    yield _Place(file, "", top)


def _inherited(world: World) -> Iterator[_Place]:
    """What NPU classes run of vllm-omni's other files, each function once."""
    seen: set[int] = set()
    for cls in world.concrete:
        effective = Effective(cls)
        for method in effective.own.values():
            for identity, reached in effective.reach(method).items():
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
        here=Side(place.file.project, place.file.path, use.node.lineno, text),
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
        owner=_owner(file, used[0]) if used else "",
        subject=name,
        what=f"{last} is made for CUDA" + (f"; vllm-ascend has {other}" if other else ""),
        here=Side(file.project, file.path, line, bound),
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
    return Side(cls.project, cls.file.path, cls.node.lineno, last) if isinstance(cls, ClassSymbol) else None


def _owner(file: File, node: ast.AST) -> str:
    for cls in file.classes.values():
        for method in cls.methods.values():
            if any(inner is node for inner in walk(method.node)):
                return method.qualname
    return ""
