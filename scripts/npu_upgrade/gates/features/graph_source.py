"""Graphs, as a release has them: captured and replayed lines, and what takes them away again."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

from npu_upgrade.code.walk import walk
from npu_upgrade.gates.features.capability import DEFAULT, RESOLVED, Capability, Proof, Way, logged
from npu_upgrade.gates.features.flags import flags
from npu_upgrade.gates.features.log_calls import LogCall, log_call, log_calls
from npu_upgrade.gates.features.package import Package

_SWITCH = "--enforce-eager"
_CAPTURED = re.compile(r"graph captur\w* finished", re.IGNORECASE)
_REPLAYED = re.compile(r"graph replay|replay\w* .{0,20}graph", re.IGNORECASE)
_DRAFT = re.compile(r"draft|eagle|speculat", re.IGNORECASE)


def probe(ascend: Package | None, vllm: Package | None) -> Capability:
    """Graphs are on unless eager mode is asked for; a platform without a replay line has none to prove."""
    packages = [one for one in (ascend, vllm) if one]
    switch = flags(vllm).get(_SWITCH) if vllm else None
    if ascend is None:
        why = "only graphs of an NPU can be replayed, and no vllm-ascend is here"
        return Capability("graph", known=True, why=why)
    replayed = [call for call in log_calls(ascend, "replay") if _is_replay(call)]
    captured = [call for one in packages for call in log_calls(one, "captur") if _CAPTURED.search(call.text)]
    shown = (logged(captured), logged(replayed, after_ready=True))
    if not switch:
        why = f"no option {_SWITCH} in vLLM's source"
        return Capability("graph", known=vllm is not None, proofs=shown, why=why)
    eager = Proof(RESOLVED, "enforce_eager", "enforce_eager=False", switch)
    taken = [call for one in packages for call in _downgrades(one, "NONE")]
    lowered = [call for one in packages for call in _downgrades(one, "PIECEWISE")]
    return Capability(
        "graph",
        known=True,
        ways=(Way(DEFAULT, _SWITCH, switch),),
        proofs=((eager,), *shown),
        against=logged(taken),
        lowered=logged(lowered),
        names=_modes(vllm) if vllm else (),
        why="" if replayed else "this release logs nothing when it replays a graph",
    )


def _modes(vllm: Package) -> tuple[str, ...]:
    """The modes of graphs as ``NAME=VALUE``, the value as it stands in JSON."""
    for path, _text in vllm.holding("class CUDAGraphMode", below="config/"):
        tree = vllm.parsed(path)
        for node in walk(tree) if tree else ():
            if isinstance(node, ast.ClassDef) and node.name == "CUDAGraphMode":
                return _members(node)
    return ()


def _members(definition: ast.ClassDef) -> tuple[str, ...]:
    values: dict[str, object] = {}
    for node in definition.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            if isinstance(value, ast.Constant):
                values[node.targets[0].id] = value.value
            elif isinstance(value, ast.Tuple):
                values[node.targets[0].id] = [values.get(ast.unparse(one)) for one in value.elts]
    return tuple(f"{name}={json.dumps(value)}" for name, value in values.items())


def _is_replay(call: LogCall) -> bool:
    return call.level == "info" and bool(_REPLAYED.search(call.text)) and not _DRAFT.search(call.text)


def _downgrades(package: Package, mode: str) -> Iterator[LogCall]:
    """What is logged beside the statement that gives the graphs a lesser ``mode``."""
    for path, _text in package.holding("cudagraph_mode ="):
        tree = package.parsed(path)
        for node in walk(tree) if tree else ():
            for name in ("body", "orelse"):
                block = getattr(node, name, None)
                if isinstance(block, list) and any(_sets(one, mode) for one in block):
                    yield from _said(block, path)


def _sets(statement: ast.stmt, mode: str) -> bool:
    if not isinstance(statement, ast.Assign):
        return False
    targets = [ast.unparse(one) for one in statement.targets]
    value = ast.unparse(statement.value)
    return any(one.endswith(".cudagraph_mode") for one in targets) and value.endswith(f"CUDAGraphMode.{mode}")


def _said(block: list[ast.stmt], path: str) -> Iterator[LogCall]:
    for statement in block:
        if isinstance(statement, ast.Expr) and (call := log_call(statement.value, path)) and call.is_telling:
            yield call
