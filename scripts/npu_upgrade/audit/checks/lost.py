"""What functions and classes of the NPU side had in the old pair and have lost, with nothing in its place.

A release that changes a function on purpose writes something where it takes something away; an edit that
only takes away, while all that is taken away still exists, is one that was lost.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher

from npu_upgrade.audit.checks.attributes import undefined_reads
from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import device_files, functions_of
from npu_upgrade.audit.parity.lost import KEYWORD, OPERAND, STEP, lost
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.code.walk import dotted, walk
from npu_upgrade.ground.held import held
from npu_upgrade.ground.tables import cut
from npu_upgrade.lineage.dialect import is_for_device
from npu_upgrade.program.conditions import text_of
from npu_upgrade.program.mentions import Mention, Mentions
from npu_upgrade.program.places import files_with
from npu_upgrade.program.program import ClassSymbol, File
from npu_upgrade.program.scope import Scope, locals_of, scope_of

ABOUT = "statements, methods and overrides of the old pair that are gone with nothing in their place"

_WORD = re.compile(r"[A-Za-z_]\w+")
_CALL = re.compile(r"self(?:\.\w+)+\(")
_NO_MATTER = re.compile(r"(logger\.|log\.|assert |import |from |global |nonlocal |pass$|['\"]|print\()")


def check(world: World) -> Iterator[Finding]:
    if world.old is None or world.triple.omni is None:  # vllm-ascend's own releases take away on purpose
        return
    told = told_of_what_it_follows(world)
    for file in world.files:
        old = world.old.program.file(file.path)
        if old is None or old.source == file.source:
            continue
        for scope, was in functions_of_both(file, old):
            gone, whole = _gone(scope, was) if id(scope.node) not in told else ("", "")
            if gone and not (is_moved(gone, whole, scope, world) or _is_above(whole, scope)):
                yield from _finding(scope, was, gone, whole, world)
        for name, cls in file.classes.items():
            if name in old.classes:
                yield from _overrides(cls, old.classes[name])
                yield from _methods(cls, old.classes[name], world)
    yield from _for_device(world, world.old)


@held
def told_of_what_it_follows(world: World) -> set[int]:
    """The functions of which another check says that what they follow still has what they lost."""
    return {id(item.npu.node) for kind in (OPERAND, KEYWORD, STEP) for item in lost(world, kind)}


def _for_device(world: World, before: World) -> Iterator[Finding]:
    """The overrides that classes of other files lost, of what is named for the device."""
    device = world.side.project.device
    for file in device_files(world):
        old = before.program.file(file.path)
        for name in file.classes.keys() & old.classes.keys() if old else ():
            for found in _overrides(file.classes[name], old.classes[name]) if old else ():
                if is_for_device(name, device) or is_for_device(found.subject, device):
                    yield found


def place_of(scope: Scope) -> tuple[str, str]:
    """The class and the name of a function."""
    return scope.owner.name if scope.owner else "", scope.name.rpartition(".")[2]


def _gone(scope: Scope, was: Scope) -> tuple[str, str]:
    """What the function lost, as one line and in whole, where nothing else of it changed; else empty."""
    nothing = ("", "")
    if _source(scope) == _source(was) or text_of(scope.node) == text_of(was.node):
        return nothing
    ours, theirs = statements_of(scope.node.body), statements_of(was.node.body)
    matcher = SequenceMatcher(None, [s.key for s in theirs], [s.key for s in ours], autojunk=False)
    changes = [change for change in matcher.get_opcodes() if change[0] != "equal"]
    if len(changes) > 1:  # an import that went with what needed it is no change of its own
        changes = [change for change in changes if not _is_import(theirs[change[1] : change[2]], change[0])]
    if len(changes) != 1:
        return nothing
    kind, a0, a1, b0, b1 = changes[0]
    # What empties a block leaves ``pass`` in it.
    if kind == "delete" or (kind == "replace" and [s.key for s in ours[b0:b1]] == ["pass"]):
        telling = [s.key for s in theirs[a0:a1] if not _NO_MATTER.match(s.key)]
        blocks = sum(s.indent == min(one.indent for one in theirs[a0:a1]) for s in theirs[a0:a1])
        return (telling[0], " ".join(telling)) if telling and blocks == 1 else nothing
    return nothing


def functions_of_both(file: File, old: File) -> Iterator[tuple[Scope, Scope]]:
    """The functions of a file that an older version of it has too, each with the old one."""
    before = {place_of(scope): scope for scope in functions_of(old)}
    for scope in functions_of(file):
        if was := before.get(place_of(scope)):
            yield scope, was


def _is_import(gone: Sequence[Statement], kind: str) -> bool:
    return kind == "delete" and all(one.key.startswith(("import ", "from ")) for one in gone)


def _source(scope: Scope) -> list[str]:
    body = scope.node.body
    return scope.file.lines[body[0].lineno - 1 : body[-1].end_lineno]


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text) if not keyword.iskeyword(word)}


def statements_of(body: Sequence[ast.stmt]) -> list[Statement]:
    """The statements of a block in one spelling, those of its blocks among them."""
    source = "\n".join(map(unparse, body))
    return [statement for statement in split_statements(source) if statement.key != END]


def _finding(scope: Scope, was: Scope, gone: str, whole: str, world: World) -> Iterator[Finding]:
    if not is_there(whole, scope, world) or is_followed(place_of(scope)[1], gone, world):
        return
    yield Finding(
        kind="lost",
        owner=scope.owner.name if scope.owner else scope.name,
        subject=f"{cut(gone, 60)} in {place_of(scope)[1]}",
        what=f"{scope.name} no longer has `{cut(gone, 80)}`, and nothing else of it changed",
        here=side(scope.file, scope.node.body[0].lineno, scope.name),
        there=side(was.file, was.node.body[0].lineno, cut(gone, 100)),
        incident="P",
        why="what it did is done nowhere now, though all that it used is there still",
        todo="put it back, or waive it with the reason",
    )


def is_followed(name: str, gone: str, world: World) -> bool:
    """Whether functions of that name beyond the NPU side had it in the old pair, and none has it now."""
    assert world.old
    had, has = (
        any(gone in text_of(scope.node) for scope in named_beyond(name, side)) for side in (world.old, world)
    )
    return had and not has


def named_beyond(name: str, world: World) -> Iterator[Scope]:
    """The functions of that name that are not audited, of all trees."""
    audited = {file.path for file in world.files}
    return named(name, world, audited)


def named(name: str, world: World, left_out: Collection[str] = ()) -> Iterator[Scope]:
    """The functions of that name, of all trees but for the files ``left_out``."""
    for package in world.program.trees:
        for path, _ in files_with(world.program, package, f"def {name}("):
            file = world.program.file(path) if path not in left_out else None
            yield from (one for one in functions_of(file) if place_of(one)[1] == name) if file else ()


def is_moved(gone: str, whole: str, scope: Scope, world: World) -> bool:
    """Whether another place of the NPU side has it now that had it not: the text, or all its words.

    A single word says too little: much else may have brought it there.
    """
    assert world.old
    if gone in text_of(scope.node):  # a condition that is turned round has all its words still
        return False
    words = _words(whole) - {"self"}
    own, then = (scope.file.path, *place_of(scope)), _units(world.old)
    for place, (text, now) in _units(world).items():
        was, had = then.get(place, ("", Counter[str]()))
        if place == own or text == was:
            continue
        if text.count(gone) > was.count(gone):
            return True
        if len(words) > 1 and all(now[word] > had[word] for word in words):
            return True
    return False


def _is_above(whole: str, scope: Scope) -> bool:
    """Whether the parent's method, which the function goes on to call, does it."""
    name = place_of(scope)[1]
    if scope.owner is None or f"super().{name}(" not in text_of(scope.node):
        return False
    above = next((cls.methods[name] for cls in scope.owner.mro[1:] if name in cls.methods), None)
    text = text_of(above.node) if above else ""
    return _words(whole) - {"self"} <= _words(text) and all(call in text for call in _CALL.findall(whole))


# A file, a class and a function in it; without a function all of the file that is in none.
_Unit = tuple[str, str, str]


@held
def _units(world: World) -> dict[_Unit, tuple[str, Counter[str]]]:
    """The text and the words of each function of the NPU side, and of the rest of each file."""
    found: dict[_Unit, tuple[str, Counter[str]]] = {}
    for file in world.files:
        left = list(file.lines)
        for scope in functions_of(file):
            start, end = scope.node.body[0].lineno - 1, scope.node.body[-1].end_lineno or 0
            left[start:end] = [""] * (end - start)
            found[file.path, *place_of(scope)] = _counted(text_of(scope.node))
        found[file.path, "", ""] = _counted("\n".join(left))
    return found


def _counted(text: str) -> tuple[str, Counter[str]]:
    return text, Counter(_WORD.findall(text))


def is_there(gone: str, scope: Scope, world: World) -> bool:
    """Whether the trees have all the words still: none is of an interface that went.

    What the function only calls on itself is defined somewhere, under that name.
    """
    words = _words(gone)
    left = [word for word in words if word not in scope.file.source]
    mentions = Mentions(world.program)
    called = [word for word in words if f"self.{word}(" in gone]
    if not all(map(mentions.is_defined, called)):
        return False
    return all(any(_is_name(word, one, world) for one in mentions.of(word)) for word in left)


def _is_name(word: str, mention: Mention, world: World) -> bool:
    """Whether a file has a word as a name, or as a whole string: a word of a text is used by nothing."""
    file = world.program.file(mention.path)
    fields = ("id", "attr", "name", "arg", "value")
    return file is not None and any(word == getattr(n, f, None) for n in file.nodes for f in fields)


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


def _methods(cls: ClassSymbol, was: ClassSymbol, world: World) -> Iterator[Finding]:
    """What the class had, and the NPU side still asks for, though neither the class nor another has it."""
    told = {read.name for read in undefined_reads(cls)}
    for name in sorted(was.methods.keys() - cls.methods.keys() - told):
        held = any(name in {*owner.methods, *owner.fields, *owner.assigned} for owner in cls.mro)
        if held or name.startswith("__"):
            continue
        if user := _user(name, cls, world):
            yield Finding(
                kind="method",
                owner=cls.name,
                subject=name,
                what=f"{cls.name} no longer has {name}, which {user.name or user.file.path} asks for",
                here=side(cls),
                there=side(user.file, user.node, user.name),
                incident="A",
                why="the call raises AttributeError, or is caught and done without",
                todo=f"put {name} back, or take out what asks for it",
            )


def _user(name: str, cls: ClassSymbol, world: World) -> Scope | None:
    """Who asks for the method: the class on its own objects, others where nothing has that name now, or the
    project's other files, which do without it where an object has none."""
    for method in cls.methods.values():
        scope = scope_of(cls, method)
        if name in locals_of(scope.node).asked:
            return None
        if any(dotted(node) == f"{scope.first}.{name}" for node in _loads(scope.node, name)):
            return scope
    users = [scope for file in world.files if f".{name}" in file.source for scope in functions_of(file)]
    users = [scope for scope in users if next(_loads(scope.node, name), None)]
    asked = any(name in locals_of(scope.node).asked for scope in users)
    made = re.compile(rf"\bdef {name}\b|\b{name}\s*[:=](?!=)|[\"']{name}[\"']")
    if not users and (asker := _asker(name, world)):
        return asker
    if not users or asked or any(made.search(one.text) for one in Mentions(world.program).of(name)):
        return None
    return users[0]


def _asker(name: str, world: World) -> Scope | None:
    """The function beyond the NPU side that asks an object of another class whether it has the name."""
    asks = re.compile(rf"(?:hasattr|getattr)\(\s*(?!self\s*,)[^()]+,\s*[\"']{name}[\"']")
    audited = {file.path for file in world.files}
    for path in world.program.holding(world.side.project.package, name):
        file = world.program.file(path) if path not in audited else None
        for scope in functions_of(file) if file and asks.search(file.source) else ():
            if asks.search(text_of(scope.node)):
                return scope
    return None


def _loads(node: ast.AST, name: str) -> Iterator[ast.Attribute]:
    for inner in walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr == name and isinstance(inner.ctx, ast.Load):
            yield inner
