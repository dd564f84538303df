"""Random one-place mutations of a release's whole NPU side: how many the audit notices, kind by kind.

The incident cases are known to whoever writes the checks; these are drawn. Not every one is a
defect that a maintainer would want reported.
"""

from __future__ import annotations

import ast
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from bench.audit_blind import CAUSE, Sides
from bench.edit_places import Text, ordered
from bench.edits import Edit, edited
from bench.incidents import Case, Expect
from bench.shared import Run
from npu_upgrade.code.definitions import functions
from npu_upgrade.code.names import imports_in
from npu_upgrade.code.signatures import Function
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.lineage.downstream import Runner, omni_side
from npu_upgrade.sources.tree import SourceTree

Mutation = tuple[str, Edit]
KINDS = (
    *("misname import", "misname attribute", "drop parameter", "drop target", "delete override"),
    *("delete call", "delete branch", "drop operand", "drop keyword"),
)


def sweep(specs: dict[str, str], count: int, seed: int, run: Run) -> tuple[str, str]:
    """``count`` mutations of each kind, drawn by ``seed``: a table, and how many were noticed of how many."""
    sides = Sides()
    omni = sides.trees.tree(specs, "omni")
    drawn: dict[str, list[Edit]] = defaultdict(list)
    for kind, edit in mutations(omni):
        drawn[kind].append(edit)
    noticed, tried = Counter[str](), Counter[str]()
    for kind, edits in drawn.items():
        for edit in _sample(omni, edits, count, random.Random(seed)):
            case = Case(kind, "", "A", specs, (edit,), "", expect=Expect(""))
            state = run.result(kind, msgspec.to_builtins(case), str, _state, sides, case)
            tried[kind] += 1
            noticed[kind] += state == CAUSE
            shown = {key: value for key, value in edit.items() if key != "in"}
            say(f"{'noticed' if state == CAUSE else 'MISSED '} {kind}: {shown}")
    rows = [(kind, f"{noticed[kind]} of {tried[kind]}", str(len(drawn[kind]))) for kind in KINDS]
    return table(("mutation", "noticed", "possible"), rows), f"{noticed.total()}/{tried.total()}"


def _state(sides: Sides, case: Case) -> str:
    return sides.judge(case).state


def mutations(omni: SourceTree) -> Iterator[Mutation]:
    """All mutations of the NPU side; those of parity in runners only where the GPU runner has the same."""
    side = omni_side(omni)
    runners = {runner.path: runner for runner in side.runners}
    for path in side.paths:
        if runner := runners.get(path):
            found = _of_runner(omni, runner)
        else:
            found = _of_file(Text(path, omni.read(path)).tree)
        yield from ((kind, {"in": "omni", "path": path, **edit}) for kind, edit in found)


def _of_file(tree: ast.Module) -> Iterator[Mutation]:
    yield from _imports(tree)
    for node in tree.body:
        if isinstance(node, Function):
            yield from _within(node.name, [*_signatures(node), *_targets(node), *_parity(node, node)])
        elif isinstance(node, ast.ClassDef):
            for name, method in functions(node).items():
                found = [*_signatures(method), *_attributes(method), *_targets(method)]
                found += _parity(method, method)
                yield from _within(f"{node.name}.{name}", found)


def _within(at: str, found: Iterable[Mutation]) -> Iterator[Mutation]:
    yield from ((kind, {"at": at} | edit) for kind, edit in found)


def _of_runner(omni: SourceTree, runner: Runner) -> Iterator[Mutation]:
    text = Text(runner.path, omni.read(runner.path))
    yield from _imports(text.tree)
    node = text.definition(runner.class_name)
    mirrored = Text(runner.gpu_path, omni.read(runner.gpu_path)).definition(runner.gpu_class)
    assert isinstance(node, ast.ClassDef)
    assert isinstance(mirrored, ast.ClassDef)
    theirs = functions(mirrored)
    for name, method in functions(node).items():
        found = [*_signatures(method), *_attributes(method), *_targets(method)]
        if name in theirs:
            found += _parity(method, theirs[name])
        yield from _within(f"{runner.class_name}.{name}", found)


def _imports(tree: ast.Module) -> Iterator[Mutation]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("vllm.", "vllm_ascend.")):
            for item in imports_in(node):
                edit = {"module": node.module, "name": item.name, "to_name": f"{item.name}Old"}
                yield "misname import", {"do": "change-import", **edit}


def _signatures(method: Function) -> Iterator[Mutation]:
    for arg in [*method.args.args[1:], *method.args.kwonlyargs]:
        yield "drop parameter", {"do": "drop-parameter", "parameter": arg.arg}


def _attributes(method: Function) -> Iterator[Mutation]:
    seen = Counter[str]()
    for node in ordered(method):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            name = f"self.{node.attr}"
            seen[name] += 1
            if isinstance(node.ctx, ast.Load):
                edit = {"name": name, "to": f"{name}_old", "nth": seen[name]}
                yield "misname attribute", {"do": "replace-name", **edit}


def _targets(method: Function) -> Iterator[Mutation]:
    for node in ordered(method):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = ast.unparse(node.value.func)
            if isinstance(node.targets[0], ast.Tuple) and name.startswith("self."):
                yield "drop target", {"do": "drop-item", "of": "targets", "call": name, "index": 0}


def _parity(method: Function, mirrored: Function) -> Iterator[Mutation]:
    if method.name != "__init__":
        yield "delete override", {"do": "delete-definition"}
    calls = {_last(node): node for node in ast.walk(mirrored) if isinstance(node, ast.Call)}
    tests = {ast.unparse(node.test) for node in ast.walk(mirrored) if isinstance(node, ast.If)}
    operands = {ast.unparse(v) for n in ast.walk(mirrored) if isinstance(n, ast.BoolOp) for v in n.values}
    for node in ordered(method):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _last(node.value) in calls:
            yield "delete call", {"do": "delete-statement", "calls": ast.unparse(node.value.func)}
        elif isinstance(node, ast.Call) and _last(node) in calls:
            given = {keyword.arg for keyword in calls[_last(node)].keywords}
            for keyword in node.keywords:
                if keyword.arg and keyword.arg in given:
                    yield "drop keyword", {"do": "drop-keyword", "call": _last(node), "keyword": keyword.arg}
        elif isinstance(node, ast.If) and ast.unparse(node.test) in tests:
            yield "delete branch", {"do": "delete-statement", "tests": ast.unparse(node.test)}
        elif isinstance(node, ast.BoolOp):
            for operand in sorted(operands.intersection(map(ast.unparse, node.values))):
                yield "drop operand", {"do": "drop-item", "of": "operands", "item": operand}


def _last(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _sample(omni: SourceTree, edits: Sequence[Edit], count: int, draw: random.Random) -> Iterator[Edit]:
    """``count`` of the edits, those left out that do not find exactly one place."""
    for edit in draw.sample(edits, len(edits)):
        if not count:
            return
        try:
            edited(omni, [edit])
        except BadInput:
            continue
        count -= 1
        yield edit
