"""Questions as an agent is asked them: alike ones as one, what stands in the file short, nothing twice."""

from __future__ import annotations

import difflib
import json
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from npu_upgrade.job.ask import CONFLICT, Ask
from npu_upgrade.job.notes import Note, notes_for

MOST_CHARACTERS = 4800
"""So much is shown of what is asked together."""
_NOT_IN_THE_FILE, _IN_THE_FILE, _IN_CONFLICT = 570, 320, 1920
"""So long a text is shown whole; what omni has stands in the file at the place that is named."""
_BEGIN = 160
"""So much is shown of a longer one: who needs it reads all of it, in the file with all questions."""
_ENDS = 300
"""Of a side of a conflict so much of both ends."""
_RUN, _BEGIN_OF_RUN, _END_OF_RUN = 1320, 300, 900
"""Of a failed run the end of its traceback is enough."""
MORE = "characters more, questions.md"
_SIDE = re.compile(r"^--- (base|ours|theirs)\n", re.MULTILINE)
_HERE, _THERE = re.compile(r"\bhere: [^\n]*?:(\d+):.*"), re.compile(r"\bthere: (?:\S+ )?([^:\n]*:\d+|-).*")
_PROJECT = re.compile(r"^there: [\w-]+ (?=\S+:\d)")
_FOLDER = re.compile(r"(^there: |\| )((?:[\w.-]+/)+)(?=[\w-]+\.py:\d)", re.MULTILINE)
_SAID = re.compile(r"why: |do: |The override calls it ")
_SAID_OF_ALL = re.compile(r"gpu: |or: ")  # which names what it is about
_NAME = re.compile(r"(?:self\.)?\w+(?:\(\))?|\W")
_RULE = re.compile(r"[-=]{6,}")


@dataclass
class _Entry:
    """Questions that differ in names and places only."""

    lines: Mapping[str, str]
    said: Collection[str]
    asks: list[Ask] = field(default_factory=list)

    def shown(self) -> dict[str, Any]:
        first, whats = self.asks[0], [_what(ask) for ask in self.asks]
        if len(self.asks) == 1:
            shown: dict[str, Any] = {"id": first.id, "what": whats[0]}
        else:
            form, rows = _form(whats)
            each = {
                ask.id: " | ".join([*row, *_there(ask)]) for ask, row in zip(self.asks, rows, strict=True)
            }
            shown = {"what": form, "each": each}
        return shown | self._texts() | {"answer": " | ".join(options(first))}

    def _texts(self) -> dict[str, str]:
        """The texts of the first, without the names and the place that are its own."""
        texts = self._cut(self.asks[0])
        told = [_THERE.sub("", self._cut(ask).get("text", "")) for ask in self.asks]
        if len(set(told)) > 1:
            texts["text"] = re.sub(r"\[\d+\]", "...", _form(told)[0])
        elif len(told) > 1:
            texts["text"] = told[0]
        return {role: text.strip("\n") for role, text in texts.items() if text}

    def _cut(self, ask: Ask) -> dict[str, str]:
        """The texts of a question, each whole or a little of it, with the lines where all of it is."""
        texts = {role: text for role, text in _texts(ask).items() if text}
        if "text" in texts:
            kept = [line for line in texts["text"].split("\n") if line not in self.said]
            texts["text"] = "\n".join(kept)
        limits = [_limits(ask, role) for role in texts]
        if ask.stage == CONFLICT and any(len(text) > _IN_CONFLICT for text in texts.values()):
            limits = [(2 * _ENDS, _ENDS, _ENDS) for _ in texts]  # all of them are to be read there
        where = self.lines.get(ask.id, "")
        return {
            role: _cut(text, *most, where) for (role, text), most in zip(texts.items(), limits, strict=True)
        }


def as_asked(
    asks: Sequence[Ask], answered: Sequence[str], lines: Mapping[str, str]
) -> tuple[list[Ask], list[dict[str, Any]]]:
    """The first of the questions that there is room for, and how they are shown.

    ``answered`` are the texts of what was answered before: the incidents that fit these were shown then.
    ``lines``: where each has all of its texts, in the file with all questions.
    """
    found: dict[str, _Entry] = {}
    taken: list[Ask] = []
    told = {note for text in answered for note in notes_for("", text)}
    said = set[str]()
    size = 0
    for ask in asks:
        key = repr((ask.id.rpartition("-")[0], ask.how, _rest(ask), _shape(_what(ask))))
        entry = found.setdefault(key, _Entry(lines, frozenset(said)))
        before = _size(entry.shown()) if entry.asks else 0
        entry.asks.append(ask)
        size += _size(entry.shown()) - before
        if taken and size > MOST_CHARACTERS:
            entry.asks.pop()
            break
        taken.append(ask)
        said |= {line for line in ask.texts.get("text", "").split("\n") if _SAID_OF_ALL.match(line)}
    shown = _once([entry.shown() for entry in found.values() if entry.asks])
    notes = [note for note in notes_of(taken[0]) if note not in told]
    if notes:
        shown[0]["went_wrong_before"] = [f"{note.incident}: {note.note}" for note in notes]
    return taken, shown


def options(ask: Ask) -> list[str]:
    """The words that answer it in a file of answers."""
    return list(dict.fromkeys(how[1] if how[0] == "--take" else how[0][2:] for how in ask.how))


def notes_of(ask: Ask) -> list[Note]:
    """The incidents that fit it."""
    return notes_for(ask.unit, " ".join([ask.what, *ask.texts.values()]))


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _what(ask: Ask) -> str:
    """What it is about, with the line where it stands, else with the lines of the method."""
    here = _HERE.search(ask.texts.get("text", ""))
    line = here[1] if here else f"{ask.first}-{ask.last}" if ask.first else ""
    if not ask.path:
        return ask.what
    what = ask.what.removeprefix(f"{ask.path}: ").replace(f": {ask.path} ", ": this file ")
    if re.match(rf"{re.escape(ask.path)}:\d", what):
        return what
    return f"{ask.path}:{line}: {what}" if line else f"{ask.path}: {what}"


def _there(ask: Ask) -> list[str]:
    there = _THERE.search(ask.texts.get("text", ""))
    return [there[1]] if there and there[1] != "-" else []


def _rest(ask: Ask) -> str:
    """Its texts, less the places, with the names that tell it from its like left out."""
    names = set(re.findall(r"\w+", ask.what))
    text = "\n".join(f"{role}\n{_THERE.sub('', _HERE.sub('', text))}" for role, text in ask.texts.items())
    prose = "\n".join(line for line in text.split("\n") if not line.startswith(("+", "-", "@", " ")))
    words = ["_" if word in names or word.isdigit() else word for word in _words(prose)]
    code = [line for line in text.split("\n") if line.startswith(("+", "-", "@", " "))]
    return "\n".join(["".join(words), *code])


def _form(texts: Sequence[str]) -> tuple[str, list[list[str]]]:
    """What texts of one shape have in common, with [1], [2] for the words that differ; these, for each."""
    columns = list(zip(*map(_NAME.findall, texts), strict=False))
    differing = list(dict.fromkeys(column for column in columns if len(set(column)) > 1))
    numbers = {column: f"[{number}]" for number, column in enumerate(differing, 1)}
    rows = [[column[row] for column in differing] for row in range(len(texts))]
    return "".join(numbers.get(one, one[0]) for one in columns), rows


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\W", text)


def _shape(text: str) -> str:
    return _NAME.sub(lambda found: "_" if found[0][-1].isalnum() or found[0][-1] in "_)" else found[0], text)


def against_base(texts: dict[str, str]) -> dict[str, str]:
    """The sides by their roles, which may stand in one text; as what differs from base where that is shorter.

    Base is left out where at least one side is shown by that.
    """
    if texts.get("text", "").startswith("--- "):
        sides = _SIDE.split(texts["text"])[1:]
        texts = dict(zip(sides[::2], sides[1::2], strict=True))
    base, found = texts.get("base"), dict[str, str]()
    for role, text in texts.items() if base else ():
        diff = _diff(base or "", text)
        if role != "base":
            found |= {f"{role} against base": diff} if len(diff) < len(text) else {role: text}
    return found if found.keys() - texts.keys() else texts


def _texts(ask: Ask) -> dict[str, str]:
    """Of the sides what differs from the base, where that is shorter.

    Conflicts are shown as they stand, since an answer takes their place.
    """
    texts = {role: text for role, text in ask.texts.items() if text or role != "text"}
    if "text" in texts and not texts["text"].startswith("--- "):
        texts["text"] = "\n".join(_told(ask, texts["text"]))
    texts = against_base(texts)
    if ask.stage == CONFLICT:  # a side without lines is one that took them out
        return {role: (text.strip("\n") and text) or "(nothing)" for role, text in texts.items()}
    return {role: _RULE.sub("---", textwrap.dedent(text)).strip("\n") for role, text in texts.items()}


def _told(ask: Ask, text: str) -> Iterator[str]:
    """The lines that its title does not say too; with a place that is shown elsewhere for its like."""
    for line in text.splitlines():
        there = _THERE.fullmatch(line)
        if there and there[1] != "-":
            told = set(_words(line[there.end(1) :])) <= set(_words(ask.what))
            yield _PROJECT.sub("there: ", line[: there.end(1)] if told else line)
        elif line not in ask.what and not there and not line.startswith("here: "):
            yield line


def _once(shown: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The questions, in which nothing is said that the one before them said too."""
    folders: set[str] = set()
    there = ""

    def shorter(found: re.Match[str]) -> str:
        nonlocal there
        known, there = there, found[2]
        return found[1] if there == known else found[0]

    for one in shown:
        if "each" in one:
            one["each"] = {id_: _FOLDER.sub(shorter, row) for id_, row in one["each"].items()}
        if "text" in one:
            one["text"] = _FOLDER.sub(shorter, one["text"])
        found = re.match(r"(\S+/)[^/\s]+\.py", one["what"])
        if found and found[1] in folders:
            one["what"] = one["what"].removeprefix(found[1])
        folders |= {found[1]} if found else set()
    for before, one in reversed(list(pairwise(shown))):
        if one["answer"] == before["answer"]:
            del one["answer"]
        said = [line for line in before.get("text", "").splitlines() if _SAID.match(line)]
        kept = [line for line in one.get("text", "").splitlines() if line not in said]
        one |= {"text": "\n".join(kept)} if said and "text" in one else {}
    return [{key: value for key, value in one.items() if value} for one in shown]


def _diff(base: str, text: str) -> str:
    lines = difflib.unified_diff(base.splitlines(), text.splitlines(), lineterm="", n=1)
    return "\n".join(list(lines)[2:])


def _limits(ask: Ask, role: str) -> tuple[int, int, int]:
    """How long a text is shown whole, and how much of the beginning and end of a longer one."""
    if ask.stage == CONFLICT:
        return _IN_CONFLICT, _ENDS, _ENDS
    if ask.is_run:
        return _RUN, _BEGIN_OF_RUN, _END_OF_RUN
    return _IN_THE_FILE if role.startswith("ours") else _NOT_IN_THE_FILE, _BEGIN, 0


def _cut(text: str, most: int, first: int, last: int, where: str) -> str:
    """``text`` whole where it is short, else its beginning and end in whole lines, and where all of it is."""
    if len(text) <= most:
        return text
    begin, end = text[:first], text[len(text) - last :] if last else ""
    begin, end = begin.rpartition("\n")[0] or begin, end.partition("\n")[2] or end
    told = f"... {len(text) - len(begin) - len(end)} {MORE}{f':{where}' if where else ''}"
    return "\n".join([begin, told, end] if end else [begin, told])
