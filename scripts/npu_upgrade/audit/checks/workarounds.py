"""NPU code that upstream has made unnecessary: overrides equal to what they override, conditions that
are always the same with the given trees, notes to remove something once a version is reached.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from packaging.version import Version

from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.program import ClassSymbol, File, Method
from npu_upgrade.audit.version_guards import evaluate, version_of
from npu_upgrade.audit.world import World
from npu_upgrade.pycode.exports import absolute
from npu_upgrade.pycode.module import parse_module
from npu_upgrade.pycode.names import Import, imports_in
from npu_upgrade.pycode.statements import END, split_statements
from npu_upgrade.upgrade.definitions import catches_import_error
from npu_upgrade.upgrade.signatures import plain_text

NAME = "workarounds"
ABOUT = "overrides, guards and notes that the given upstream has made unnecessary"

_NOTE = re.compile(
    r"\b(?P<project>vllm[-_ ]ascend|vllm)\b\s*(?:version|release)?\s*(?:>=|==|=|>|is|to|at)?\s*v?"
    r"(?P<version>\d+\.\d+(?:\.\d+)?(?:rc\d+|\.post\d+)?)",
    re.IGNORECASE,
)
_REMOVE = re.compile(
    r"\b(remove|drop|delete|revert|clean ?up|get rid|not needed|no longer needed)\b", re.IGNORECASE
)
_WHEN = re.compile(
    r"\b(when|once|after|until|as soon as|if|upgrad\w+|bump\w*|moves? to|with)\b", re.IGNORECASE
)
_DOES_NOTHING = (ast.Pass, ast.Expr)


def check(world: World) -> Iterator[Finding]:
    if not world.of_omni:
        return
    for cls in world.classes:
        yield from _equal_overrides(world, cls)
        yield from _sure_attributes(world, cls)
    yield from _equal_copies(world)
    vllm = version_of(world.triple.vllm.version)
    for file in world.files:
        yield from _version_guards(file, vllm)
        yield from _import_guards(file, world)
        yield from _reached_notes(file, world)


def _equal_overrides(world: World, cls: ClassSymbol) -> Iterator[Finding]:
    """Methods whose removal would change nothing, in the class itself and in all that derive from it."""
    heirs = [cls, *(other for other in world.classes if other is not cls and cls in other.mro)]
    for method in cls.methods.values():
        behind = [heir.after(cls, method.name) for heir in heirs]
        if any(b is None for b in behind) or _is_stub(method):
            continue
        text = plain_text(method.node)
        first = behind[0]
        if first and all(b and plain_text(b.node) == text and _same_names(method, b) for b in behind):
            what = f"{method.qualname} is the same as {first.qualname}, which it overrides"
            yield _finding(
                "equal-override", cls.name, method.name, what, _side(method), _side(first),
                "it stays as it is when the method it hides is improved", "delete the override",
            )  # fmt: skip


def _same_names(one: Method, other: Method) -> bool:
    """Whether the global names in two equal methods stand for the same things in both files."""
    files = one.owner.file, other.owner.file
    names = {node.id for node in ast.walk(one.node) if isinstance(node, ast.Name)} & _globals(files[0])
    for name in names:
        here, there = (file.resolve(name) for file in files)
        if here is not there and here != there:
            return False
    # A super() call reaches another class from each of the two.
    return not any(isinstance(node, ast.Name) and node.id == "super" for node in ast.walk(one.node))


def _globals(file: File) -> set[str]:
    return {*file.classes, *file.functions, *file.values, *file.imports}


def _is_stub(method: Method) -> bool:
    return all(isinstance(node, _DOES_NOTHING) for node in method.node.body)


def _equal_copies(world: World) -> Iterator[Finding]:
    """Top-level classes and functions that are word for word what the given vllm-ascend has."""
    for copy in world.copies:
        if copy.unit.owner or copy.target is None:
            continue
        theirs = [s.key for s in split_statements(copy.target.source) if s.key != END]
        if theirs == [s.key for s in copy.ours if s.key != END]:
            what = f"{copy.unit.qualname} is the same as vllm-ascend's {copy.upstream_name}"
            here = Side("vllm-omni", copy.path, copy.unit.start + 1, "copy")
            there = Side("vllm-ascend", copy.upstream_path, copy.target.start + 1, copy.upstream_name)
            why = "it stays as it is when upstream's changes"
            yield _finding("equal-copy", "", copy.unit.name, what, here, there, why, "import upstream's")


def _sure_attributes(world: World, cls: ClassSymbol) -> Iterator[Finding]:
    """``hasattr(self, "x")`` where x is a method of every class it can be asked of, one finding per method."""
    heirs = [other for other in world.classes if cls in other.mro]
    for method in cls.methods.values():
        sure: dict[str, Method] = {}
        lines: dict[str, int] = {}
        for node, name in _asked_of_self(method):
            found = [heir.lookup(name) for heir in heirs]
            if found and all(found) and name not in cls.assigned and found[0]:
                sure.setdefault(name, found[0])
                lines.setdefault(name, node.lineno)
        for name, defined in sure.items():
            what = f"{method.qualname} asks whether self has {name}, which {defined.owner.name} defines as a method"
            here = Side("vllm-omni", cls.file.path, lines[name], f"asks for {name}")
            yield _finding(
                "sure-attribute", method.qualname, name, what, here, _side(defined),
                "the other branch never runs, and hides a misspelt or lost method one day", "call it without asking",
            )  # fmt: skip


def _asked_of_self(method: Method) -> Iterator[tuple[ast.Call, str]]:
    first = next((arg.arg for arg in method.node.args.args), None)
    for node in ast.walk(method.node):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr"):
            continue
        if len(node.args) == 2 and isinstance(node.args[0], ast.Name) and node.args[0].id == first:
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node, name.value


def _version_guards(file: File, vllm: Version | None) -> Iterator[Finding]:
    for node in ast.walk(file.tree):
        if not isinstance(node, (ast.If, ast.IfExp)):
            continue
        outcome = evaluate(node.test, vllm)
        if outcome is not None:
            what = f"the condition on vLLM's version in line {node.lineno} is always {outcome} with {vllm}"
            subject = ast.unparse(node.test)
            here = Side(file.project, file.path, node.lineno, "condition on the version")
            yield _finding(
                "version-guard", _around(file, node.lineno), subject, what, here, None,
                "one branch is dead code", "keep the branch that runs",
            )  # fmt: skip


def _import_guards(file: File, world: World) -> Iterator[Finding]:
    """``try: import`` with another place to import the same from, when one of the places does not exist."""
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.Try) or not any(catches_import_error(h) for h in node.handlers):
            continue
        tried = _imports(node.body, file)
        other = _imports([s for handler in node.handlers for s in handler.body], file)
        for name in sorted(tried.keys() & other.keys()):
            places = tried[name], other[name]
            if not all(world.program.judges(item.module) for item in places):
                continue
            exist = [world.program.imported(item) is not None for item in places]
            if exist[0] != exist[1]:
                gone = places[exist.index(False)]
                what = f"{name} has a second place to be imported from, and {gone.module} does not have it"
                here = Side(file.project, file.path, node.lineno, f"imports {name} from either place")
                yield _finding(
                    "import-guard", "", name, what, here, None,
                    "the place that is gone is dead code", f"import it from {places[exist.index(True)].module} only",
                )  # fmt: skip


def _imports(body: list[ast.stmt], file: File) -> dict[str, Import]:
    nodes = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {item.bound: absolute(item, file.path) for node in nodes for item in imports_in(node) if item.name}


def _reached_notes(file: File, world: World) -> Iterator[Finding]:
    """Comments that tell to remove something with a version that the given trees have reached."""
    for line, text in _comments(file.source):
        found = _NOTE.search(text)
        if not found or not (_REMOVE.search(text) and _WHEN.search(text)):
            continue
        project = "vllm-ascend" if "ascend" in found["project"].lower() else "vllm"
        tree = world.triple.ascend if project == "vllm-ascend" else world.triple.vllm
        named, have = version_of(found["version"]), version_of(tree.version)
        if named and have and have >= named:
            what = f"a note wants something removed with {project} {named}, and the tree has {have}"
            here = Side(file.project, file.path, line, f"note about {project} {named}")
            yield _finding(
                "reached-note", _around(file, line), f"{project} {named}", what, here, None,
                "the reason for it is gone", "do what the note says, or correct it",
            )  # fmt: skip


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments with the line they begin in; those on lines that follow one another are one."""
    start, last, parts = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and parts:
            yield start, " ".join(parts)
            parts = []
        start = start if parts else token.start[0]
        last = token.start[0]
        parts.append(token.string.lstrip("# "))
    if parts:
        yield start, " ".join(parts)


def _around(file: File, line: int) -> str:
    """The method or function around a line, empty at the top level."""
    units = parse_module(file.source).units.values()
    return next((unit.qualname for unit in units if unit.start < line <= unit.end), "")


def _side(method: Method) -> Side:
    return Side(method.owner.project, method.owner.file.path, method.node.lineno, method.qualname)


def _finding(
    kind: str, owner: str, subject: str, what: str, here: Side, there: Side | None, why: str, todo: str
) -> Finding:
    return Finding(NAME, kind, owner, subject, what, here, there, "", why, todo)
