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

from npu_upgrade.code.conflict_text import MarkedConflict
from npu_upgrade.code.conflict_text import answers as both_sides
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.statements import END, Comment, Statement, render, statements_of
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_json
from npu_upgrade.ground.progress import say
from npu_upgrade.merge.answer_regions import Region, resolved_regions
from npu_upgrade.merge.conflict_identity import conflict_key, depth_of, identity, left_edge
from npu_upgrade.threeway.pieces import Conflict, Flag, MergedMethod, Piece, syntax_error

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
    """The answers kept in ``folder``, one JSON file per conflict; the folder is made when one is kept.

    Where two methods have the same conflict and were given different answers, both are kept
    and neither is used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, conflict: Conflict) -> str | None:
        """The answer at the conflict's depth; empty when all is to go, None when there is none."""
        texts = conflict.texts()
        key = conflict_key(*texts)
        kept = self._load(key)
        if len({(entry["answer"], entry["shift"]) for entry in kept}) > 1:
            say(f"note: {self._path(key)} is not used: its answers differ; delete it or the wrong one")
            return None
        return _at_depth(kept[0]["answer"], depth_of(*texts) + kept[0]["shift"]) if kept else None

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

        It replaces what was learned at the same ``path`` and ``method`` of ``where``. Raises
        :class:`SyntaxError` when the answer cannot be tokenised, and :class:`BadInput` when
        the folder cannot be written.
        """
        statements = statements_of(answer)
        edge = left_edge(statements)
        text = render([_moved(statement, -edge) for statement in statements])
        shift = edge - depth_of(base, ours, theirs) if statements else 0
        place = dict(where or {})
        kept = self._load(key)
        same = [entry for entry in kept if _is_same_place(entry["learned"], place)]
        if any((entry["answer"], entry["shift"]) == (text, shift) for entry in same):
            return
        learned = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **place}
        entries = [entry for entry in kept if entry not in same]
        entries.append({"answer": text, "shift": shift, "learned": learned})
        sides = {"base": base, "ours": ours, "theirs": theirs}
        write_json(self._path(key), {"key": key, **sides, "answers": entries})

    def forget(self, key: str, where: Mapping[str, Any]) -> None:
        """Let go of what was learned for a conflict at the ``path`` and ``method`` of ``where``."""
        kept = self._load(key)
        left = [entry for entry in kept if not _is_same_place(entry["learned"], where)]
        if left and left != kept:
            whole = json.loads(self._path(key).read_text("utf-8"))
            write_json(self._path(key), whole | {"answers": left})
        elif not left:
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _load(self, key: str) -> list[dict[str, Any]]:
        """What is kept for a conflict; empty for nothing, or for a file that is not as it was written."""
        path = self._path(key)
        try:
            kept = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            say(f"note: {path} is ignored: {error}")
            return []
        entries = kept.get("answers") if isinstance(kept, dict) and kept.get("key") == key else None
        if isinstance(entries, list) and all(map(_is_entry, entries)):
            return entries
        say(f"note: {path} is ignored: it does not hold answers to this conflict")
        return []


def _is_entry(entry: Any) -> bool:
    kinds = {"answer": str, "shift": int, "learned": dict}
    if not isinstance(entry, dict) or any(type(entry.get(name)) is not kind for name, kind in kinds.items()):
        return False
    try:
        statements_of(entry["answer"])
    except SyntaxError:
        return False
    return True


def _is_same_place(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return all(a.get(name) == b.get(name) for name in ("path", "method"))


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
    method = method_at(preimage, conflict.line)
    return conflict, Learned(key, conflict.line + 1, method, region.text, reason)


def method_at(preimage: str, line: int) -> str:
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
