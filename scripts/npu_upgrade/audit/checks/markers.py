"""The markers around omni code in copied methods: pairs that do not close, code on the wrong side.

Only what is plain is reported. Code counts as omni's when no known version of upstream's method has
it and it uses a name that upstream's runners do not have; as upstream's when it stands there at the
same depth.
"""

from __future__ import annotations

import io
import itertools
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.audit.copies import Copy
from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.world import World
from npu_upgrade.code.module import Unit, parse_module
from npu_upgrade.code.statements import END, line_numbers
from npu_upgrade.lineage.marker_places import is_fence, is_marker, is_rule, omni_code, unmarked_statements
from npu_upgrade.program.program import File
from npu_upgrade.threeway.align import align, weight

ABOUT = "omni code outside markers, upstream's code inside, markers that do not pair"

FEWEST = 3
"""From so many statements on, code on the wrong side of markers is worth a finding."""

_SHOWN = 6
_NAME = re.compile(r"[A-Za-z_]\w*")
_TEXT = re.compile(r"""(["'])(?!\w+\1).*?\1""")  # what is quoted, names alone excepted


def check(world: World) -> Iterator[Finding]:
    if not world.of_omni:
        return
    words = _upstream_words(world)
    for file in world.worker_files:
        for scope, fences in fences_in(file).items():
            yield from _unpaired(file, scope, fences)
    for copy in world.copies:
        yield from _outside(copy, words)
        yield from _inside(copy)


def _upstream_words(world: World) -> set[str]:
    """All names in the files of upstream's runners and in the versions that were looked at."""
    files = {copy.upstream_path for copy in world.copies}
    upstream = world.side.upstream
    runner = world.program.find_class(upstream.path, upstream.class_name)
    above = (cls.file.path for cls in (runner.mro if runner else ()) if cls.project == "vllm")
    files.update(itertools.islice(above, 1))
    texts = [file.source for path in files if (file := world.program.file(path))]
    texts += [key for copy in world.copies for key in copy.known]
    return {name for text in texts for name in _NAME.findall(text)}


def _outside(copy: Copy, words: set[str]) -> Iterator[Finding]:
    """One finding for all omni code of a method that has no markers."""
    omni = omni_code(copy.ours, copy.base)
    where = line_numbers(copy.ours, copy.unit.start)
    unmarked = unmarked_statements(copy.ours, omni)
    runs = _runs(number for number in sorted(unmarked) if _is_own(copy, number))
    own = [number for run in runs if any(_foreign(copy, n, words) for n in run) for number in run]
    if len(own) < FEWEST:
        return
    places = _ranges([where[number] for number in own])
    yield _finding(
        copy,
        "unmarked",
        where[own[0]][0],
        f"{len(own)} of {sum(omni)} omni statements of {copy.unit.qualname} stand outside markers: "
        f"lines {', '.join(places[:_SHOWN])}{' and more' if len(places) > _SHOWN else ''}",
        "who syncs the method by its markers loses this code",
        "put markers around it: upgrade.py merge --mark",
    )


def _is_own(copy: Copy, number: int) -> bool:
    """Whether a statement is not upstream's of any version, and bears no marker of its own."""
    statement = copy.ours[number]
    beside = [text for line in statement.lines if "#" in line for text in [line[line.index("#") :]]]
    noted = any(is_marker(text) for text in [*beside, *(c.text for c in statement.comments)])
    return statement.key not in copy.known and not noted and weight(statement.key) > 1


def _foreign(copy: Copy, number: int, words: set[str]) -> bool:
    """Whether a statement uses a name that upstream's runners do not have."""
    return not set(_NAME.findall(_TEXT.sub("", copy.ours[number].key))) <= words


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers that follow one another, together."""
    runs: list[list[int]] = []
    for number in numbers:
        if not runs or runs[-1][-1] + 1 != number:
            runs.append([])
        runs[-1].append(number)
    return runs


def _unpaired(file: File, scope: str, fences: Sequence[Fence]) -> Iterator[Finding]:
    """An odd number of markers in one method or class, or one that a mere line of dashes closes."""
    markers = [fence for fence in fences if not fence.is_rule]
    if len(markers) % 2 == 0:
        return
    rules = [fence for fence in fences if fence.is_rule and fence.line > markers[0].line]
    place = scope or file.path.rpartition("/")[2]
    if rules:
        line, kind = rules[0].line, "closed-by-dashes"
        what = f"a line of dashes closes a marker of {place}"
    else:
        line, kind = odd_one(markers).line, "unpaired"
        count = f"{len(markers)} marker{'s' * (len(markers) > 1)}"
        what = f"{place} has {count}, so one of them opens or closes nothing"
    owner, _, name = scope.rpartition(".")
    why = "pairs after it turn over, and tools take upstream's code for omni's"
    here = Side("vllm-omni", file.path, line, "marker without its pair")
    yield Finding(kind, owner, name, what, here, None, "", why, "close each marker with the same marker")


def _inside(copy: Copy) -> Iterator[Finding]:
    """Pairs that hold upstream's own code, more of it than of omni's."""
    every = [
        (number, comment)
        for number, statement in enumerate(copy.ours)
        for comment in statement.comments
        if is_fence(comment.text) or is_rule(comment.text)
    ]
    markers = [(number, comment.indent) for number, comment in every if is_fence(comment.text)]
    if len(markers) != len(every) or len(markers) % 2:
        return
    same = {
        number for i, number in align(copy.base, copy.ours) if copy.base[i].indent == copy.ours[number].indent
    }
    held: list[int] = []
    for opening, closing in zip(markers[::2], markers[1::2], strict=True):
        between = [n for n in range(opening[0], closing[0]) if copy.ours[n].key != END]
        theirs = [n for n in between if n in same and weight(copy.ours[n].key) > 1]
        if opening[1] == closing[1] and len(theirs) >= FEWEST and 2 * len(theirs) > len(between):
            held += theirs
    if not held:
        return
    places = _ranges([line_numbers(copy.ours, copy.unit.start)[n] for n in held])
    yield _finding(
        copy,
        "upstream-inside",
        line_numbers(copy.ours, copy.unit.start)[held[0]][0],
        f"markers of {copy.unit.qualname} hold {len(held)} statements that are upstream's own: "
        f"lines {', '.join(places[:_SHOWN])}",
        "what is taken for omni's is kept when upstream changes it",
        "let markers hold omni's statements only",
    )


def _ranges(spans: Sequence[tuple[int, int]]) -> list[str]:
    """Lines as ``3-5, 9``; spans that meet are one."""
    joined: list[list[int]] = []
    for first, last in spans:
        if joined and first <= joined[-1][1] + 1:
            joined[-1][1] = max(last, joined[-1][1])
        else:
            joined.append([first, last])
    return [f"{a}" if a == b else f"{a}-{b}" for a, b in joined]


def _finding(copy: Copy, kind: str, line: int, what: str, why: str, todo: str) -> Finding:
    here = Side("vllm-omni", copy.path, line, f"copied from vllm-ascend {copy.version}")
    there = Side("vllm-ascend", copy.upstream_path, 0, copy.upstream_name)
    return Finding(kind, copy.unit.owner, copy.unit.name, what, here, there, "", why, todo)


@dataclass(frozen=True)
class Fence:
    """A marker, or a line of dashes that may close one; ``line`` is 1-based, ``depth`` its column."""

    line: int
    depth: int
    is_rule: bool


def fences_in(file: File) -> dict[str, list[Fence]]:
    """The markers of a file by the qualified name of the method, else of the class, else ``""``."""
    units = sorted(parse_module(file.source).units.values(), key=lambda unit: unit.start)
    found: dict[str, list[Fence]] = {}
    for fence in _fences(file.source):
        found.setdefault(_scope(file, units, fence), []).append(fence)
    return found


def odd_one(markers: Sequence[Fence]) -> Fence:
    """The first marker that has no second one at its depth; the last one where all have."""
    depths = [marker.depth for marker in markers]
    return next((marker for marker in markers if depths.count(marker.depth) % 2), markers[-1])


def _fences(source: str) -> Iterator[Fence]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        own_line = token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip()
        if own_line and (is_fence(token.string) or is_rule(token.string)):
            yield Fence(token.start[0], token.start[1], not is_fence(token.string))


def _scope(file: File, units: Sequence[Unit], fence: Fence) -> str:
    """What a marker stands in; below the last statement of a method, its depth tells."""
    before = [unit for unit in units if unit.start < fence.line]
    if before:
        last = before[-1]
        indent = len(last.source) - len(last.source.lstrip())
        if fence.line <= last.end or fence.depth > indent:
            return last.qualname
    classes = (cls.node for cls in file.classes.values())
    inside = [node.name for node in classes if fence.depth > 0 and node.lineno < fence.line]
    return inside[-1] if inside else ""
