"""Classes that a GPU class has among its ancestors and its NPU counterpart has not.

They are told where they bring what the NPU class lacks, and where other code asks for them by type.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.parity.gaps import missing_bases
from npu_upgrade.audit.world import Pair, World
from npu_upgrade.code.walk import dotted, walk
from npu_upgrade.ground.tables import shortened
from npu_upgrade.program.facts import facts_of
from npu_upgrade.program.program import ClassSymbol, File, Method

ABOUT = "bases of a GPU class that its NPU counterpart lacks, for what they bring or as others ask for them"
_ASKING = {"isinstance", "issubclass"}


def check(world: World) -> Iterator[Finding]:
    for pair in world.pairs if world.of_omni else []:
        missing = missing_bases(pair, world)
        brought = {id(above) for cls in missing for above in cls.mro[1:]}
        # A mixin that comes with another missing one, or with a missing parent class, is told there.
        yield from (
            _finding(pair, cls)
            for cls in missing
            if id(cls) not in brought and _lacking(pair, cls) and not _told_above(pair, cls, world)
        )
        told = {id(cls) for cls in missing if _lacking(pair, cls)}
        for cls in pair.gpu.mro:
            unlike = world.side.is_own(cls) and cls not in pair.npu.mro and id(cls) not in told
            if unlike and not _told_above(pair, cls, world) and (asking := _asked(world, cls)):
                yield _unlike(pair, cls, *asking)


def _asked(world: World, cls: ClassSymbol) -> tuple[File, int] | None:
    """Where code of the downstream beside the class's own and the NPU side asks whether something is one."""
    for path in world.program.paths(world.side.project.package):
        if path == cls.file.path or path in world.side.paths or cls.name not in world.program.text(path):
            continue
        file = world.program.file(path)
        for node in file.nodes if file else ():
            if isinstance(node, ast.Call) and len(node.args) == 2 and dotted(node.func) in _ASKING:
                held, kinds = dotted(node.args[0]), walk(node.args[1])
                if file and _is_runner(held) and any(_names(file, kind, cls) for kind in kinds):
                    return file, node.lineno
    return None


def _is_runner(held: str) -> bool:
    """Whether a name is what code beyond a runner or worker calls it."""
    return bool({"runner", "worker"} & set(held.lower().replace(".", "_").split("_")))


def _names(file: File, node: ast.AST, cls: ClassSymbol) -> bool:
    return isinstance(node, ast.Name) and node.id.endswith(cls.name) and file.resolve(node) is cls


def _lacking(pair: Pair, base: ClassSymbol) -> list[str]:
    """The methods of a mixin that the NPU class has not, or runs without the mixin's part in them."""
    methods = [method for cls in base.mro if cls.project == base.project for method in cls.methods.values()]
    return [m.name for m in methods if pair.npu.lookup(m.name) is None or _adds(m, pair.npu)]


def _adds(method: Method, npu: ClassSymbol) -> bool:
    """Whether a method goes on with ``super()`` and calls things that no NPU class calls in its place."""
    facts = facts_of(method.owner.file, method.node)
    there = [cls.methods[method.name] for cls in npu.mro if method.name in cls.methods]
    done = {key for other in there for key in facts_of(other.owner.file, other.node).of}
    added = {fact.key for fact in facts.of.values() if fact.call} | _called(method)
    done |= {key for other in there for key in _called(other)}
    return method.name in facts.supers and bool(added) and not added & done


def _called(method: Method) -> set[tuple[str, str]]:
    """The functions that a method calls by a bare name, imported in its body too."""
    calls = (node.func for node in walk(method.node) if isinstance(node, ast.Call))
    return {("call", f.id) for f in calls if isinstance(f, ast.Name) and f.id != "super"}


def _told_above(pair: Pair, base: ClassSymbol, world: World) -> bool:
    above = (other for other in world.pairs if other is not pair and other.npu in pair.npu.mro)
    return any(base in other.gpu.mro for other in above)


def _unlike(pair: Pair, base: ClassSymbol, asking: File, line: int) -> Finding:
    return Finding(
        kind="not an instance",
        owner=pair.npu.name,
        subject=base.name,
        what=f"{pair.npu.name} is no {base.name}, as {pair.gpu.name} is and {asking.path}:{line} asks for",
        here=side(pair.npu),
        there=side(asking, line),
        incident="P",
        why="whoever asks the class takes it for one that cannot do this",
        todo=f"derive {pair.npu.name} from {base.name}, or let the question ask for what both have",
    )


def _finding(pair: Pair, base: ClassSymbol) -> Finding:
    shown = shortened(_lacking(pair, base), 3)
    return Finding(
        kind="missing base",
        owner=pair.npu.name,
        subject=base.name,
        what=f"{pair.gpu.name} has {base.name} among its bases, {pair.npu.name} has not: no {shown}",
        here=side(pair.npu),
        there=side(pair.gpu),
        incident="P",
        why="calls of its methods fail, or are skipped where the code asks for them first",
        todo=f"add {base.name} to the bases, and port the calls that set it up",
        like="vllm-omni #5234",
    )
