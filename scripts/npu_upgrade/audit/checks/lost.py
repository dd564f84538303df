"""What functions and classes of the NPU side had in the old pair and have lost, with nothing in its place.

A release that changes a function on purpose writes something where it takes something away; an edit that
only takes away, while all that is taken away still exists, is one that was lost.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

from npu_upgrade.audit.checks.parity_conditions import sense_of
from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import functions_of
from npu_upgrade.audit.parity.lost import EMPTY, KEYWORD, OPERAND, STEP, lost
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.ground.tables import cut
from npu_upgrade.program.conditions import text_of
from npu_upgrade.program.mentions import Mentions
from npu_upgrade.program.places import files_with
from npu_upgrade.program.program import ClassSymbol
from npu_upgrade.program.scope import Scope

ABOUT = (
    "statements, keywords, operands and overrides of the old pair that are gone with nothing in their place"
)

_WORD = re.compile(r"[A-Za-z_]\w+")
_NO_MATTER = re.compile(r"(logger\.|log\.|assert |import |from |global |nonlocal |pass$|['\"]|print\()")


def check(world: World) -> Iterator[Finding]:
    if world.old is None or world.triple.omni is None:  # vllm-ascend's own releases take away on purpose
        return
    told = {id(item.npu.node) for kind in (OPERAND, KEYWORD, STEP) for item in lost(world, kind)}
    for file in world.files:
        old = world.old.program.file(file.path)
        if old is None or old.source == file.source:
            continue
        before = {_place(scope): scope for scope in functions_of(old)}
        for scope in functions_of(file):
            was = before.get(_place(scope))
            if was and id(scope.node) not in told and (gone := _gone(scope, was)):
                yield from _finding(scope, was, gone, world)
        for name, cls in file.classes.items():
            if name in old.classes:
                yield from _overrides(cls, old.classes[name])


def _place(scope: Scope) -> tuple[str, str]:
    return scope.cls.name if scope.cls else "", scope.name.rpartition(".")[2]


def _gone(scope: Scope, was: Scope) -> str:
    """The text that the function lost, where nothing else of it changed; empty for any other change."""
    if _source(scope) == _source(was) or text_of(scope.node) == text_of(was.node):
        return ""
    ours, theirs = _statements(scope), _statements(was)
    matcher = SequenceMatcher(None, [s.key for s in theirs], [s.key for s in ours], autojunk=False)
    changes = [change for change in matcher.get_opcodes() if change[0] != "equal"]
    if len(changes) != 1:
        return ""
    kind, a0, a1, b0, b1 = changes[0]
    if kind == "delete":
        telling = [s.key for s in theirs[a0:a1] if not _NO_MATTER.match(s.key)]
        blocks = sum(s.indent == min(one.indent for one in theirs[a0:a1]) for s in theirs[a0:a1])
        return telling[0] if telling and blocks == 1 else ""
    if kind == "replace" and a1 - a0 == b1 - b0 == 1:
        return _part(theirs[a0].key, ours[b0].key)
    return ""


def _source(scope: Scope) -> list[str]:
    body = scope.node.body
    return scope.file.lines[body[0].lineno - 1 : body[-1].end_lineno]


def _statements(scope: Scope) -> list[Statement]:
    source = "\n".join(unparse(stmt) for stmt in scope.node.body)
    return [statement for statement in split_statements(source) if statement.key != END]


def _part(before: str, now: str) -> str:
    """The operand or keyword that is all that a statement lost, or the condition that it turned round."""
    old, new = _parsed(before), _parsed(now)
    if old is None or new is None:
        return ""
    for one in ast.walk(old):
        if isinstance(one, (ast.If, ast.While, ast.IfExp)):
            test = next((n.test for n in ast.walk(new) if isinstance(n, type(one))), None)
            if test is not None and sense_of(test) == sense_of(one.test, negated=True):
                return unparse(one.test)
    wanted = unparse(new)
    for one in ast.walk(old):
        parts: list = one.values if isinstance(one, ast.BoolOp) else getattr(one, "keywords", [])
        for place, part in enumerate(list(parts)):
            del parts[place]
            left = unparse(ast.parse(unparse(old))) if parts or isinstance(one, ast.Call) else ""
            parts.insert(place, part)
            # What is empty is what the callee takes by itself, most often.
            empty = isinstance(part, ast.keyword) and unparse(part.value) in EMPTY
            if left == wanted:
                return "" if empty else unparse(part)
    return ""


def _parsed(key: str) -> ast.Module | None:
    key = key.removeprefix("el")
    try:
        return ast.parse(f"{key} pass" if key.endswith(":") else key)
    except SyntaxError:
        return None


def _finding(scope: Scope, was: Scope, gone: str, world: World) -> Iterator[Finding]:
    words = {word for word in _WORD.findall(gone) if not keyword.iskeyword(word)}
    # A condition that is turned round has all its words still.
    if (gone not in text_of(scope.node) and _is_moved(words, world)) or not _is_there(words, scope, world):
        return
    if _is_followed(_place(scope)[1], gone, world):
        return
    yield Finding(
        kind="lost",
        owner=scope.cls.name if scope.cls else scope.name,
        subject=f"{cut(gone, 60)} in {_place(scope)[1]}",
        what=f"{scope.name} no longer has `{cut(gone, 80)}`, and nothing else of it changed",
        here=side(scope.file, scope.node.body[0].lineno, scope.name),
        there=side(was.file, was.node.body[0].lineno, cut(gone, 100)),
        incident="P",
        why="what it did is done nowhere now, though all that it used is there still",
        todo="put it back, or waive it with the reason",
    )


def _is_followed(name: str, gone: str, world: World) -> bool:
    """Whether functions of that name beyond the NPU side had it in the old pair, and none has it now."""
    assert world.old
    had, has = (
        any(gone in text_of(scope.node) for scope in _named(name, side)) for side in (world.old, world)
    )
    return had and not has


def _named(name: str, world: World) -> Iterator[Scope]:
    audited = {file.path for file in world.files}
    for package in world.program.trees:
        for path, _ in files_with(world.program, package, f"def {name}("):
            file = world.program.file(path) if path not in audited else None
            yield from (one for one in functions_of(file) if _place(one)[1] == name) if file else ()


def _is_moved(words: set[str], world: World) -> bool:
    """Whether the NPU side has all the words as often as before: they stand elsewhere now."""
    assert world.old
    now, then = (
        Counter(w for f in side.files for w in _WORD.findall(f.source)) for side in (world, world.old)
    )
    return all(now[word] >= then[word] for word in words)


def _is_there(words: set[str], scope: Scope, world: World) -> bool:
    """Whether the trees have all the words still: none is of an interface that went."""
    left = [word for word in words if word not in scope.file.source]
    mentions = Mentions(world.program, left)
    return all(mentions.of(word) for word in left)


def _overrides(cls: ClassSymbol, was: ClassSymbol) -> Iterator[Finding]:
    """What the class had in place of its base's, which reads as it did and holds instead now."""
    for name in sorted(was.methods.keys() - cls.methods.keys()):
        now, then = cls.lookup(name), was.after(was, name)
        if now and then and now.qualname == then.qualname and text_of(now.node) == text_of(then.node):
            yield _override(cls, name, now.owner, now.node)
    for name in sorted(was.fields.keys() - cls.fields.keys() - cls.assigned.keys()):
        owner, old = (next((o for o in c.mro[1:] if name in o.fields), None) for c in (cls, was))
        same = owner and old and owner.name == old.name
        if owner and old and same and unparse(owner.fields[name]) == unparse(old.fields[name]):
            yield _override(cls, name, owner, owner.fields[name])


def _override(cls: ClassSymbol, name: str, owner: ClassSymbol, node: ast.stmt) -> Finding:
    return Finding(
        kind="override",
        owner=cls.name,
        subject=name,
        what=f"{cls.name} no longer overrides {name} of {owner.name}, which has not changed",
        here=side(cls),
        there=side(owner, node, name),
        incident="P",
        why="what was replaced for the NPU holds there again",
        todo="put the override back, or waive it with the reason",
    )
