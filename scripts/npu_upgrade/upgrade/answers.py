"""Answers to merge conflicts, remembered by content and used again, as git rerere does.

Two conflicts are the same when the statements of their three sides are: in another method,
at another depth or in another layout, with other comments. An answer is used only where the
method is Python with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from npu_upgrade.errors import BadInput
from npu_upgrade.files import write_json
from npu_upgrade.progress import say
from npu_upgrade.pycode.module import parse_module
from npu_upgrade.pycode.statements import END, Comment, Statement, render
from npu_upgrade.upgrade.answer_regions import MarkedConflict, Region, resolved_regions
from npu_upgrade.upgrade.conflict_identity import conflict_key, depth_of, identity, left_edge, statements_of
from npu_upgrade.upgrade.conflict_text import answers as both_sides
from npu_upgrade.upgrade.pieces import Conflict, Flag, MergedMethod, Piece, syntax_error

REMEMBERED = "an earlier answer to this conflict was used again"


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of one resolved conflict of a file.

    ``line`` is where it stood in the merged file (1-based), ``answer`` the text that replaced
    it; ``reason`` says why it was not learned and is empty when it was.
    """

    key: str
    line: int
    method: str
    answer: str | None
    reason: str = ""

    @property
    def learned(self) -> bool:
        return not self.reason


class Answers:
    """The answers kept in ``folder``, one JSON file for each; the folder is made when one is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, conflict: Conflict) -> str | None:
        """The answer at the conflict's depth; empty when all is to go, None when there is none."""
        texts = conflict.texts()
        entry = self._load(conflict_key(*texts))
        if entry is None:
            return None
        try:
            return _at_depth(entry["answer"], depth_of(*texts) + entry["shift"])
        except SyntaxError as error:
            say(f"note: {self._path(entry['key'])} is ignored: {error}")
            return None

    def remember(
        self,
        key: str,
        base: str,
        ours: str,
        theirs: str,
        answer: str,
        where: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep ``answer`` (as it stands in the file) for the conflict of these texts.

        Raises :class:`SyntaxError` when the answer cannot be tokenised, and :class:`BadInput`
        when the folder cannot be written.
        """
        statements = statements_of(answer)
        edge = left_edge(statements)
        kept = {
            "answer": render([_moved(statement, -edge) for statement in statements]),
            "shift": edge - depth_of(base, ours, theirs) if statements else 0,
        }
        known = self._load(key)
        if known is not None and {name: known[name] for name in kept} == kept:
            return
        learned = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **(where or {})}
        texts = {"base": base, "ours": ours, "theirs": theirs}
        write_json(self._path(key), {"key": key, **texts, **kept, "learned": learned})

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _load(self, key: str) -> dict[str, Any] | None:
        path = self._path(key)
        try:
            entry = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            say(f"note: {path} is ignored: {error}")
            return None
        if (
            isinstance(entry, dict)
            and isinstance(entry.get("answer"), str)
            and type(entry.get("shift")) is int
            and entry.get("key") == key
        ):
            return entry
        say(f"note: {path} is ignored: it does not hold an answer to this conflict")
        return None


def apply_answers(merged: MergedMethod, answers: Answers) -> MergedMethod:
    """``merged`` with remembered answers in place of its conflicts, and a flag for each."""
    conflicts = {n: piece for n, piece in enumerate(merged.pieces) if isinstance(piece, Conflict)}
    texts = {number: answers.find(conflict) for number, conflict in conflicts.items()}
    found = {number: statements_of(text) for number, text in texts.items() if text is not None}
    used = _usable(merged.pieces, found)
    if not used:
        return merged
    flags = [Flag("remembered", REMEMBERED, *conflicts[number].texts()) for number in used]
    return replace(merged, pieces=tuple(_answered(merged.pieces, used)), flags=(*merged.flags, *flags))


def learn(preimage: str, postimage: str, answers: Answers, where: Mapping[str, Any]) -> list[Learned]:
    """Remember how the conflicts of ``preimage`` were resolved in ``postimage``.

    Both are texts of one file: as the merge wrote it, and as it is now. Conflicts that are
    still open are left out; one that could not be learned is returned with the reason.
    ``where`` (JSON-able) is kept with each answer.
    """
    found = [_judge(region, preimage) for region in resolved_regions(preimage, postimage)]
    by_key: dict[str, set[str]] = {}
    for _, entry in found:
        if entry.answer is not None and entry.learned:
            by_key.setdefault(entry.key, set()).add(json.dumps(identity(entry.answer)))
    out = []
    for conflict, entry in found:
        if entry.learned and len(by_key[entry.key]) > 1:
            entry = replace(entry, reason="the same conflict was answered in two ways in this file")
        if entry.learned:
            texts = (conflict.base, conflict.ours, conflict.theirs)
            details = {**where, "method": entry.method, "labels": conflict.labels}
            answers.remember(entry.key, *texts, entry.answer or "", details)
        out.append(entry)
    return out


def _judge(region: Region, preimage: str) -> tuple[MarkedConflict, Learned]:
    conflict, reason = region.conflict, region.reason
    if region.text is not None:
        try:
            statements_of(region.text)
        except SyntaxError as error:
            reason = f"the answer is not Python: {error.msg}"
    key = conflict_key(conflict.base, conflict.ours, conflict.theirs)
    method = _method_at(preimage, conflict.line)
    return conflict, Learned(key, conflict.line + 1, method, region.text, reason)


def _method_at(preimage: str, line: int) -> str:
    """The qualified name of the unit that a line of a file with conflicts belongs to."""
    try:
        ours = both_sides(preimage)[0]
        units = parse_module(ours.text).units.values()
    except (SyntaxError, BadInput):
        return ""
    before = [unit for unit in units if unit.start < len(ours.rows) and ours.rows[unit.start] <= line]
    return max(before, key=lambda unit: unit.start).qualname if before else ""


def _usable(pieces: Sequence[Piece], found: Mapping[int, list[Statement]]) -> dict[int, list[Statement]]:
    """As many of the answers as leave the method Python, all of them if possible."""
    if syntax_error(_answered(pieces, found)) is None:
        return dict(found)
    used: dict[int, list[Statement]] = {}
    for number, statements in found.items():
        if syntax_error(_answered(pieces, used | {number: statements})) is None:
            used[number] = statements
    return used


def _answered(pieces: Sequence[Piece], found: Mapping[int, list[Statement]]) -> list[Piece]:
    """The pieces with answers in place; comments at the end of one go to what follows."""
    out: list[Piece] = []
    waiting: tuple[Comment, ...] = ()
    for number, piece in enumerate(pieces):
        for item in found.get(number, [piece]):
            if isinstance(item, Statement) and item.key == END and number in found:
                waiting = (*waiting, *item.comments)
            elif isinstance(item, Statement):
                out.append(replace(item, comments=(*waiting, *item.comments)))
                waiting = ()
            else:
                out += [*_trailing(waiting), item]
                waiting = ()
    return [*out, *_trailing(waiting)]


def _trailing(comments: tuple[Comment, ...]) -> list[Statement]:
    return [Statement(END, 0, (), 0, comments)] if comments else []


def _at_depth(answer: str, depth: int) -> str | None:
    """A stored answer at a column; None when there is no room for it."""
    if answer and depth < 0:
        return None
    return render([_moved(statement, depth) for statement in statements_of(answer)])


def _moved(statement: Statement, by: int) -> Statement:
    moved = statement.shifted(by)
    return replace(moved, indent=0) if statement.key == END else moved
