"""Questions and conditions that have one answer only with the given trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.workarounds.attribute_guards import (
    Guard,
    always_there,
    guards_in,
    in_module,
    names_nothing,
)
from npu_upgrade.audit.workarounds.needless import around, needless, place
from npu_upgrade.audit.world import World
from npu_upgrade.code.walk import walk
from npu_upgrade.program.program import File, Method
from npu_upgrade.program.version_guards import evaluate, version_of


def needless_questions(world: World) -> Iterator[Finding]:
    """``hasattr`` and ``getattr`` that always have the same answer, one finding per method and name."""
    every = [(file, guard) for file in world.files for guard in guards_in(file.tree)]
    dead = names_nothing({guard.name for _, guard in every}, world.triple.trees())
    known = {copy.unit.qualname: copy.known for copy in world.copies}
    workers = {file.path for file in world.worker_files}
    for file, guard in every:
        # Elsewhere the objects are torch's and other libraries' as well.
        if guard.name in dead and file.path in workers:
            what = f"nothing in the trees has or sets {guard.name}, which line {guard.node.lineno} asks for"
            why = "what it leads to never runs"
            yield _question("dead-question", file, guard, what, None, why, "delete it with what it leads to")
        elif module := in_module(guard, file):
            what = f"{module.name} has {guard.name}, so the default in line {guard.node.lineno} is never used"
            why = "the default hides that the name is gone, should it go"
            yield _question("needless-question", file, guard, what, None, why, "read the name itself")
    for method, guard in _asked_of_self(world):
        heirs = [cls for cls in world.classes if method.owner in cls.mro]
        found = always_there(guard, method, heirs)
        if found and not any(guard.text in key for key in known.get(method.qualname, ())):
            what = f"{found.qualname} always provides {guard.name}, which {method.qualname} asks for"
            why = "the other answer never comes, and would hide that the name is gone, should it go"
            there = place(found)
            file = method.owner.file
            yield _question("needless-question", file, guard, what, there, why, "use the name without asking")


def needless_version_guards(world: World, file: File) -> Iterator[Finding]:
    """Conditions on vLLM's version that the given vLLM decides."""
    vllm = version_of(world.triple.vllm.version)
    for node in walk(file.tree):
        if not isinstance(node, (ast.If, ast.IfExp)):
            continue
        outcome = evaluate(node.test, vllm)
        if outcome is not None:
            what = f"the condition on vLLM's version in line {node.lineno} is always {outcome} with {vllm}"
            subject = ast.unparse(node.test)
            here = Side(file.project, file.path, node.lineno, "condition on the version")
            yield needless(
                "version-guard", around(file, node.lineno), subject, what, here, None,
                "one branch is dead code", "keep the branch that runs",
            )  # fmt: skip


def _asked_of_self(world: World) -> Iterator[tuple[Method, Guard]]:
    for cls in world.classes:
        for method in cls.methods.values():
            yield from ((method, guard) for guard in guards_in(method.node))


def _question(
    kind: str, file: File, guard: Guard, what: str, there: Side | None, why: str, todo: str
) -> Finding:
    here = Side(file.project, file.path, guard.node.lineno, f"asks for {guard.name}")
    owner = around(file, guard.node.lineno)
    return needless(kind, owner, guard.name, what, here, there, why, todo)
