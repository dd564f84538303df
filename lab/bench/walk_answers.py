"""Answers to what `next` asks, read off the runners of the release that the maintainers made by hand."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.walk_by_hand import by_hand
from npu_upgrade.code.conflict_text import MarkedConflict, scan
from npu_upgrade.code.conflict_text import answers as readings
from npu_upgrade.code.module import Module, Unit, parse_module
from npu_upgrade.code.names import imports_of
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.statements import END, Statement, render, split_statements
from npu_upgrade.lineage.downstream import omni_side
from npu_upgrade.lineage.marker_places import is_fence
from npu_upgrade.sources.tree import SourceTree
from npu_upgrade.threeway.align import align, align_similar

FOLLOWED = 0.6
"""From this share of a hunk's statements on, the release counts as having taken it."""


@dataclass
class Answer:
    """The options of `resolve` and the text for its stdin; ``others`` are tried when it is refused."""

    options: list[str]
    text: str = ""
    others: list[Answer] = field(default_factory=list)


class NextRelease:
    """What the next release of vllm-omni has where `next` asks about something."""

    def __init__(self, tree: SourceTree, same_gpu_side: bool) -> None:
        self.name = f"vllm-omni {tree.version}"
        self.same_gpu_side = same_gpu_side
        self._modules = {
            runner.path: parse_module(tree.read(runner.path)) for runner in omni_side(tree).runners
        }

    def answer(self, ask: dict[str, Any], file: str, known: bool) -> Answer:
        """The answer to one question; ``file`` is the text of the file it is about, as it stands.

        ``known`` tells of a finding that the release has it too.
        """
        if ask["stage"] == "conflict":
            return self._conflict(ask, file)
        if ask["stage"] == "port":
            return self._hunk(ask)
        if ask["stage"] == "finding" or (ask.get("finding") and ask.get("place", {}).get("unit")):
            return self._finding(ask, file, known)
        return self._item(ask)

    def edited(self, ask: dict[str, Any], file: str, known: bool) -> str:
        """The file with what a person would edit by hand for the question; the same text if nothing."""
        place = ask.get("place", {})
        path, unit = place.get("path", ""), place.get("unit", "")
        if ask["stage"] not in ("finding", "item") or not self.same_gpu_side or path not in self._modules:
            return file
        answer = self._methods(unit, path, parse_module(file), ask["what"])
        where, asked = ("", "") if known else (unit, ask["what"].partition(": ")[2])
        return by_hand(file, self._modules[path], where, asked, answer)

    def imports_for(self, path: str, problems: Sequence[str]) -> list[str]:
        """The release's own imports of the names that nothing defines."""
        names = {name for text in problems if "nothing defines" in text for name in re.findall(r"\w+", text)}
        known = imports_of(self._modules[path].source) if path in self._modules else {}
        return [known[name].statement() for name in sorted(names) if name in known]

    def _unit(self, ask: dict[str, Any]) -> str:
        place = ask.get("place", {})
        module = self._modules.get(place.get("path", ""))
        unit = module.units.get(place.get("unit", "")) if module else None
        return unit.source if unit else ""

    def _conflict(self, ask: dict[str, Any], file: str) -> Answer:
        theirs = self._unit(ask)
        sides = sorted(("theirs", "ours", "base"), key=lambda side: -_share(ask.get(side, ""), theirs))
        fallback = [Answer(["--take", side]) for side in sides]
        text = region(file, ask["place"], theirs) if theirs else None
        if text is None:
            return Answer(fallback[0].options, others=fallback[1:])
        return Answer(["--with", "-"], text, fallback)

    def _item(self, ask: dict[str, Any]) -> Answer:
        name = re.search(r"no certain import for (\w+)", ask["what"])
        path = ask.get("place", {}).get("path") or ask["what"].partition(":")[0]
        if name:
            lines = self.imports_for(path, [f"nothing defines {name[1]}"])
            if lines:
                return Answer(["--import", *lines[:1]])
        note = (
            f"scripted, not read by a person; {self.name} has this method" if self._unit(ask) else "scripted"
        )
        word = "--accept" if any(how.startswith("--accept") for how in ask["answer"]) else "--waive"
        return Answer([word, "--note", note])

    def _hunk(self, ask: dict[str, Any]) -> Answer:
        added = [line[2:] for line in ask["text"].splitlines() if line.startswith("+ ")]
        place = ask["place"]
        module = self._modules[place["path"]]
        unit = module.units.get(place["unit"])
        where = unit.source if unit else module.source
        share = _share("\n".join(added), where) if added else 1.0
        base = len(added) == 1 and added[0].isidentifier()
        if base:
            node = module.class_def(place["unit"].partition(".")[0])
            share = float(added[0] in [getattr(one, "id", "") for one in node.bases] if node else 0)
        if share >= FOLLOWED:
            return Answer(["--accept", "--note", f"scripted: {self.name} has it"])
        return Answer(["--leave", "--note", f"scripted: {self.name} does not have it"])

    def _finding(self, ask: dict[str, Any], file: str, known: bool) -> Answer:
        why = "has the same finding" if known else "was not seen to have it: for a person to look at"
        waive = Answer(["--waive", "--note", f"scripted: {self.name} {why}"])
        place = ask.get("place", {})
        path = place.get("path", "")
        if path not in self._modules or not self.same_gpu_side:
            return waive
        text = self._methods(place.get("unit", ""), path, parse_module(file), ask["what"])
        return Answer(["--with", "-"], text, [waive]) if text else waive

    def _methods(self, unit: str, path: str, now: Module, asked: str = "") -> str:
        """The release's form of a method, with the methods and bases of its class that it lacks, and those
        methods that take other parameters there and are asked about.
        """
        module = self._modules[path]
        owner = unit.partition(".")[0]
        theirs, ours = module.methods(owner), now.methods(owner)
        waiting, taken, line = [unit.partition(".")[2]], {}, ""
        if waiting == [""]:  # something of the class itself is missing
            waiting = [name for name in theirs if name not in ours]
            has, wanted = (_base_names(one, owner) for one in (now, module))
            if lacking := [name for name in wanted if name not in has]:
                line = f"class {owner}({', '.join([*has, *lacking])}):\n"
                waiting.append("__init__")  # what sets a base up
        while waiting:
            name = waiting.pop()
            if name in taken or name not in theirs:
                continue
            if name in ours and ours[name].source == theirs[name].source:
                continue
            taken[name] = _whole_fences(theirs[name].source)
            mentioned = re.findall(rf"\b(?:self|cls|{owner})\.(\w+)", theirs[name].source)
            waiting += [
                one
                for one in mentioned
                if one in theirs
                and (
                    one not in ours
                    or (f".{one}()" in asked and _parameters(theirs[one]) != _parameters(ours[one]))
                )
            ]
        return line + ("\n\n".join(taken.values()) or ("    pass" if line else ""))


def _parameters(unit: Unit) -> str:
    node = ast.parse(textwrap.dedent(unit.source)).body[0]
    return ast.dump(node.args) if isinstance(node, Function) else ""


def _whole_fences(source: str) -> str:
    """A method without its Omni-new markers where one of a pair stands outside of it."""
    lines = source.split("\n")
    plain = [line for line in lines if not is_fence(line.strip())]
    return source if (len(lines) - len(plain)) % 2 == 0 else "\n".join(plain)


def _base_names(module: Module, owner: str) -> list[str]:
    node = module.class_def(owner)
    return [ast.unparse(base) for base in node.bases] if node else []


def region(file: str, place: dict[str, Any], theirs: str) -> str | None:
    """What stands in the method ``theirs`` where ``file`` has the conflict at ``place``; None if not told."""
    parts = _around(file, place)
    if parts is None:
        return None
    before, middle, after = parts
    whole = [*before, *middle, *after]
    target = [statement for statement in split_statements(theirs) if statement.key != END]
    outside = {*range(len(before)), *range(len(before) + len(middle), len(whole))}
    exact, near = (
        {place: mate for place, mate in pairs if place in outside}
        for pairs in (align(whole, target), align_similar(whole, target))
    )
    low = _nearest(range(len(before) - 1, -1, -1), exact, near)
    high = _nearest(range(len(before) + len(middle), len(whole)), exact, near)
    start = low + 1 if low is not None else 0
    end = high if high is not None else len(target)
    return render(target[start:end]) if start <= end else None


def _nearest(places: range, exact: dict[int, int], near: dict[int, int]) -> int | None:
    """The mate of the nearest statement that has one."""
    for place in places:
        if place in exact:
            return exact[place]
        if place in near:
            return near[place]
    return None


def _around(
    file: str, place: dict[str, Any]
) -> tuple[list[Statement], list[Statement], list[Statement]] | None:
    """The statements of the method before, in and after the conflict; all conflicts are read as ours,

    this one as theirs when ours has nothing in it.
    """
    conflicts = [item for item in scan(file) if isinstance(item, MarkedConflict)]
    marked = next((item for item in conflicts if item.line + 1 == place["first_line"]), None)
    if marked is None:
        return None
    lines = file.split("\n")
    low, high = place["first_line"] - 1, place["last_line"]
    own = marked.ours if marked.ours.strip() else marked.theirs
    first = next((line for line in own.split("\n") if line.strip()), "")
    fences = [f"{first[: len(first) - len(first.lstrip())]}{name}" for name in ("PLACE_BEGINS", "PLACE_ENDS")]
    text = readings("\n".join([*lines[:low], fences[0], *own.split("\n"), fences[1], *lines[high:]]))[0].text
    try:
        source = parse_module(text).units[place["unit"]].source
    except (SyntaxError, KeyError):
        return None
    statements = [statement for statement in split_statements(source) if statement.key != END]
    begin, end = (
        next(n for n, statement in enumerate(statements) if statement.key == fence.strip())
        for fence in fences
    )
    return statements[:begin], statements[begin + 1 : end], statements[end + 1 :]


def _share(piece: str, whole: str) -> float:
    """The share of the statements of ``piece`` that ``whole`` has."""
    wanted, there = _keys(piece), set(_keys(whole))
    return sum(key in there for key in wanted) / len(wanted) if wanted else 0.0


def _keys(source: str) -> list[str]:
    try:
        return [statement.key for statement in split_statements(source) if statement.key != END]
    except (SyntaxError, IndentationError):
        return [line.strip() for line in source.split("\n") if line.strip()]
