"""Conditions on upstream's version that the new version settles: what is left of a file without them.

A branch for versions that are no longer supported goes with its condition. Where the new version still is as
the old one was, the condition gets its number instead: the other branch is for what comes after both.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from packaging.version import Version

from npu_upgrade.code.definitions import absolute, module_of
from npu_upgrade.code.module import parse_module, split_lines
from npu_upgrade.code.names import imports_in
from npu_upgrade.code.statements import string_lines
from npu_upgrade.code.walk import dotted, string, walk
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.lineage.project import KNOWN, package_of
from npu_upgrade.merge.gone import vllm_tree
from npu_upgrade.program.version_guards import Guard, composed, guard_of, settled, version_of
from npu_upgrade.sources.tree import SourceTree, open_source

GUARD = "guard"
_MOST_LINES = 60
_MOST_EDITS = 200
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_LOW = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr)
_BLOCKS = ("body", "orelse", "finalbody")
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Upstream:
    """The package that conditions ask about, its tree before and at the target, whose version is ``now``."""

    package: str
    was: SourceTree
    target: SourceTree
    now: Version

    @cached_property
    def added(self) -> set[str]:
        """The words that the target has and the tree before had not."""
        return self._words[1] - self._words[0]

    @cached_property
    def dropped(self) -> set[str]:
        """The words that the tree before had and the target has not."""
        return self._words[0] - self._words[1]

    @property
    def words(self) -> set[str]:
        """The words that the target has."""
        return self._words[1]

    @cached_property
    def _words(self) -> tuple[set[str], set[str]]:
        found: list[set[str]] = []
        for tree in (self.was, self.target):
            paths = [path for path in tree.list(self.package) if path.endswith(".py")]
            texts = tree.contents(paths).values()
            found.append({word for data in texts for word in _WORD.findall(data.decode("utf-8", "replace"))})
        return found[0], found[1]

    def has(self, module: str, name: str) -> bool:
        """Whether the target has a module of its own, and in it the name."""
        base = module.replace(".", "/")
        path = next((one for one in (f"{base}.py", f"{base}/__init__.py") if self.target.exists(one)), "")
        if not path:
            return False
        beside = (f"{base}/{name}.py", f"{base}/{name}/__init__.py")
        return any(map(self.target.exists, beside)) or bool(
            re.search(rf"\b{re.escape(name)}\b", self.target.read(path))
        )


@dataclass(frozen=True)
class Settled:
    """What becomes of a file: ``text``, the ``lines`` of what is left to a person, and how it was decided."""

    text: str
    left: Sequence[int] = ()
    said: Sequence[str] = ()


def settling(was: SourceTree | None, target: SourceTree) -> Upstream | None:
    """The upstream whose version a project asks for: the target, of vllm-ascend the vllm below it; None where
    a commit was chosen, which has no number, or nothing tells what was there before.
    """
    if was and package_of(target) == KNOWN[0].upstreams[0]:
        was, lower = vllm_tree(was), vllm_tree(target)
        if lower is None:
            return None
        target = lower
    if was is None or not (now := version_of(target.version)):
        return None
    return Upstream(package_of(target), was, target, now)


def guarded(path: str, text: str, base: str | None, target: str, tree: SourceTree) -> str:
    """A file of ``tree`` without the conditions that the upgrade from one spec to another settles."""
    upstream = settling(open_source(base) if base else None, open_source(target))
    if upstream is None:
        return text
    found = without_settled(path, text, upstream, constants_of(python_of(tree), upstream))
    return found.text if found else text


def python_of(tree: SourceTree) -> dict[str, str]:
    """The Python files of a tree, those that are text."""
    paths = [path for path in tree.list() if path.endswith(".py")]
    return {path: data.decode("utf-8", "replace") for path, data in tree.contents(paths).items()}


def proposes_edit(detail: str) -> bool:
    """Whether an item's detail has an edit that accepting it makes."""
    return "\n@@ " in detail


def guard_items(tree: SourceTree, merged: Mapping[str, str], upstream: Upstream) -> list[Item]:
    """An item for each file with a condition that the target settles; ``merged`` are the texts of some."""
    paths = python_of(tree) | dict(merged)
    constants = constants_of(paths, upstream)
    items = []
    for path, text in sorted(paths.items()):
        found = without_settled(path, text, upstream, constants)
        if found is None or (found.text == text and not found.left):
            continue
        diff = list(
            difflib.unified_diff(text.split("\n"), found.text.split("\n"), "now", "then", lineterm="", n=2)
        )
        more = [f"... {len(diff) - _MOST_LINES} more lines"] if len(diff) > _MOST_LINES else []
        said = [*found.said, *(f"line {line}: by hand" for line in found.left)]
        title = f"{path}: conditions on {upstream.package} that {upstream.now} settles"
        detail = "\n".join([*said, *diff[2:][:_MOST_LINES], *more])
        items.append(Item(item_id(GUARD, path, text, str(upstream.now)), GUARD, title, detail, path))
    return items


def without_settled(
    path: str, text: str, upstream: Upstream, constants: Mapping[str, bool] = {}
) -> Settled | None:
    """A file without the conditions that the target settles; None for one that has none, or is not Python.

    ``constants`` are the dotted names of module constants that are such a condition, and what they come to.
    """
    asks = (
        f"{upstream.package}_version_is" in text
        or "Version(" in text
        or any(name.rpartition(".")[2] in text for name in constants)
    )
    if not asks:
        return None
    carried, said = _carried(path, text, upstream)
    names = _names_in(path, text, constants)
    for _ in range(_MOST_EDITS):
        try:
            file = _File(carried, upstream, names)
        except SyntaxError:
            return None
        edit = file.first()
        if edit is None:
            return Settled(carried, file.left(), said)
        carried = edit
    return Settled(carried, (), said)


def constants_of(paths: Mapping[str, str], upstream: Upstream) -> dict[str, bool]:
    """The constants of modules that are a settled condition, by their dotted names."""
    found: dict[str, bool] = {}
    for path, text in paths.items():
        if "Version(" not in text and f"{upstream.package}_version_is" not in text:
            continue
        try:
            nodes = ast.parse(text).body
        except (SyntaxError, ValueError):
            continue
        for node in nodes:
            if (
                isinstance(node, ast.Assign)
                and len(node.targets) == 1
                and isinstance(node.targets[0], ast.Name)
            ):
                outcome = composed(node.value, lambda one: settled(one, upstream.now, upstream.package))
                if outcome is not None:
                    found[f"{module_of(path)}.{node.targets[0].id}"] = outcome
    return found


def _names_in(path: str, text: str, constants: Mapping[str, bool]) -> dict[str, bool]:
    """The constants by the names that a file has for them."""
    found: dict[str, bool] = {}
    if not constants:
        return found
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return found
    for node in walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for item in imports_in(node):
                full = absolute(item, path)
                if (outcome := constants.get(f"{full.module}.{full.name}")) is not None:
                    found[item.bound] = outcome
        elif isinstance(node, ast.Assign) and node in tree.body and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if (outcome := constants.get(f"{module_of(path)}.{name}")) is not None:
                found[name] = outcome
    bound = [node.id for node in walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return {name: outcome for name, outcome in found.items() if bound.count(name) <= 1}


def _carried(path: str, text: str, upstream: Upstream) -> tuple[str, list[str]]:
    """A text whose conditions on the one old version name the new one where that is as the old one was."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text, []
    lines, said = split_lines(text), []
    passed = _passing(tree)
    for node in walk(tree):
        if not isinstance(node, (ast.If, ast.IfExp)):
            continue
        for part in walk(node.test):
            if not isinstance(part, ast.expr) or settled(part, upstream.now, upstream.package) is not False:
                continue
            guard = guard_of(part, upstream.package)
            if guard is None or not guard.names_one_version:
                continue
            outcome = composed(node.test, lambda one: settled(one, upstream.now, upstream.package))
            dead, live = (node.orelse, node.body) if outcome else (node.body, node.orelse)
            carry, why = _as_before(_nodes(dead), _nodes(live), guard, upstream, passed)
            said.append(f"line {node.lineno}: {why}")
            if carry:
                _renumber(lines, guard, upstream.now)
    return "".join(lines), said


def _nodes(part: ast.expr | Sequence[ast.stmt]) -> Sequence[ast.AST]:
    return [part] if isinstance(part, ast.expr) else part


def _as_before(
    dead: Sequence[ast.AST],
    live: Sequence[ast.AST],
    guard: Guard,
    upstream: Upstream,
    passed: Callable[[Sequence[ast.AST]], set[str]],
) -> tuple[bool, str]:
    """Whether the target is as the version that a condition names, and what tells."""
    for node in (one for part in live for one in walk(part)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if node.module.partition(".")[0] == upstream.package and not upstream.has(
                    node.module, alias.name
                ):
                    return (
                        True,
                        f"the target has no {node.module}.{alias.name}, which the other branch imports",
                    )
    asked = passed(live) - passed(dead)
    if words := sorted(asked - upstream.words):
        return True, f"the target has no {words[0]}, which the other branch uses"
    old, new = ({word for part in side for word in _WORD.findall(ast.unparse(part))} for side in (dead, live))
    if words := sorted((new - old) & upstream.added):
        return False, f"the target has {words[0]}, and {guard.version} had not"
    if words := sorted((old - new) & upstream.dropped):
        return False, f"the target has no {words[0]} any more"
    if guard.version.release[:2] == upstream.now.release[:2]:
        return True, f"nothing tells otherwise, and {upstream.now} is a correction of {guard.version}"
    return False, f"nothing tells whether {upstream.now} is as {guard.version} was: read both branches"


def _passing(tree: ast.Module) -> Callable[[Sequence[ast.AST]], set[str]]:
    """What parts of a file show of upstream's parameters: keywords, keys of ``**``, parameters handed on.

    A part that defines something calls what is its own.
    """
    parameters = {node.arg for node in walk(tree) if isinstance(node, ast.arg)}
    spread = {dotted(one.value) for one in walk(tree) if isinstance(one, ast.keyword) and one.arg is None}
    spread -= {""}

    def passed(nodes: Sequence[ast.AST]) -> set[str]:
        found: set[str] = set()
        for node in (one for part in nodes for one in walk(part)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                return set()
            if isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.Subscript) and dotted(node.value) in spread:
                found |= {string(node.slice)} - {""}
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in parameters:
                found.add(node.id)
        return found

    return passed


def _renumber(lines: list[str], guard: Guard, now: Version) -> None:
    for row in range(guard.node.lineno - 1, guard.node.end_lineno or guard.node.lineno):
        old = re.escape(str(guard.version))
        lines[row] = re.sub(rf"(?<=[\"'])(v?){old}(?=[\"'])", rf"\g<1>{now}", lines[row])


class _File:
    """One text, and the first condition in it that the target settles."""

    def __init__(self, text: str, upstream: Upstream, names: Mapping[str, bool]) -> None:
        self.text, self.upstream, self.names = text, upstream, names
        self.tree = parse_module(text).tree
        self.lines = split_lines(text)
        self.inside = string_lines(text.replace("\r\n", "\n"))

    def outcome(self, test: ast.expr) -> bool | None:
        return composed(test, self._holds)

    def _holds(self, node: ast.expr) -> bool | None:
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        return settled(node, self.upstream.now, self.upstream.package)

    def first(self) -> str | None:
        """The text after the first edit; None where nothing is left to do."""
        for owner in walk(self.tree):
            for name in _BLOCKS:
                block = getattr(owner, name, None)
                for place, node in enumerate(block if isinstance(block, list) else ()):
                    if isinstance(node, ast.If) and (outcome := self.outcome(node.test)) is not None:
                        if self._is_elif(node):
                            return self._without_elif(node, outcome)
                        return self._without_if(node, outcome, block, place)
        for node in walk(self.tree):
            if isinstance(node, ast.IfExp) and (outcome := self.outcome(node.test)) is not None:
                return self._put(node, self._source(node.body if outcome else node.orelse))
            if isinstance(node, ast.BoolOp) and self.outcome(node) is None:
                left = [value for value in node.values if self.outcome(value) is None]
                if len(left) < len(node.values):
                    word = " or " if isinstance(node.op, ast.Or) else " and "
                    return self._put(node, word.join(map(self._operand, left)))
        return None

    def left(self) -> list[int]:
        """The lines of settled conditions that are used otherwise than to choose a branch."""
        return [
            node.lineno
            for node in walk(self.tree)
            if isinstance(node, ast.expr)
            and settled(node, self.upstream.now, self.upstream.package) is not None
        ]

    def _is_elif(self, node: ast.If) -> bool:
        return self.lines[node.lineno - 1].lstrip().startswith("elif")

    def _without_if(self, node: ast.If, outcome: bool, block: Sequence[ast.stmt], place: int) -> str:
        first, last = node.lineno - 1, self._end(node)
        if (
            not outcome
            and node.orelse
            and isinstance(node.orelse[0], ast.If)
            and self._is_elif(node.orelse[0])
        ):
            at = node.orelse[0].lineno - 1
            kept = [self.lines[at].replace("elif", "if", 1), *self.lines[at + 1 : last]]
            return self._with(first, last, kept)
        chosen = node.body if outcome else node.orelse
        kept = self._moved(node, chosen)
        if chosen and isinstance(chosen[-1], _LEAVES):
            last = max(last, self._end(block[-1]))  # nothing comes behind it any more
            rest: Sequence[ast.stmt] = ()
        else:
            rest = block[place + 1 :]
        if not kept and place == 0 and not rest:
            kept = [f"{' ' * node.col_offset}pass\n"]
        return self._with(first, last, kept)

    def _without_elif(self, node: ast.If, outcome: bool) -> str:
        first, last = node.lineno - 1, self._end(node)
        if outcome:
            begin, end = self._body(node, node.body)
            return self._with(first, last, [f"{' ' * node.col_offset}else:\n", *self.lines[begin:end]])
        if not node.orelse:
            return self._with(first, last, [])
        return self._with(first, self._else(node), [])

    def _moved(self, node: ast.If, chosen: Sequence[ast.stmt]) -> list[str]:
        """The lines of a branch, in the column of its condition."""
        if not chosen:
            return []
        begin, end = self._body(node, chosen)
        if chosen[0].lineno == (node.lineno if chosen is node.body else self._else(node) + 1):
            return [f"{' ' * node.col_offset}{self._source(one)}\n" for one in chosen]
        by = chosen[0].col_offset - node.col_offset
        return [
            line if row in self.inside or line[:by].strip() else line[by:]
            for row, line in enumerate(self.lines[begin:end], begin)
        ]

    def _body(self, node: ast.If, chosen: Sequence[ast.stmt]) -> tuple[int, int]:
        """The half-open span of the lines of a branch, comments of its own included."""
        if chosen is node.orelse:
            return self._else(node) + 1, self._end(node)
        begin = self._header(node)
        return begin, self._else(node) if node.orelse else self._end(node)

    def _header(self, node: ast.If) -> int:
        """The line behind the one with the colon."""
        row = (node.test.end_lineno or node.lineno) - 1
        while not re.search(r":\s*(#.*)?$", self.lines[row]) and row + 1 < node.body[0].lineno - 1:
            row += 1
        return row + 1

    def _else(self, node: ast.If) -> int:
        """The line of ``else`` or ``elif``."""
        start = min(
            [node.orelse[0].lineno, *(one.lineno for one in getattr(node.orelse[0], "decorator_list", ()))]
        )
        if isinstance(node.orelse[0], ast.If) and self._is_elif(node.orelse[0]):
            return start - 1
        rows = range(start - 1, node.lineno - 1, -1)
        return next(row for row in rows if re.match(rf" {{{node.col_offset}}}else\s*:", self.lines[row]))

    def _end(self, node: ast.stmt) -> int:
        """Behind the last line of a statement, and comments that stand deeper than it."""
        end = node.end_lineno or node.lineno
        while isinstance(node, ast.If) and end < len(self.lines):
            line = self.lines[end]
            if not line.strip().startswith("#") or len(line) - len(line.lstrip()) <= node.col_offset:
                break
            end += 1
        return end

    def _with(self, first: int, last: int, kept: Sequence[str]) -> str:
        return "".join([*self.lines[:first], *kept, *self.lines[last:]])

    def _put(self, node: ast.expr, source: str) -> str:
        """The text with another expression in the place of one."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head = self.lines[first].encode()[: node.col_offset].decode()
        tail = self.lines[last].encode()[node.end_col_offset :].decode()
        return self._with(first, last + 1, [head + source + tail])

    def _operand(self, node: ast.expr) -> str:
        source = self._source(node)
        return f"({source})" if isinstance(node, _LOW) else source

    def _source(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or ast.unparse(node)
