"""The error signatures of serve logs: what a line says, what caused it, and what to do.

The data is ``signatures.yaml`` beside this file, most specific first. A text of a signature is plain,
``*`` stands for anything on the same line, and ``^`` at its beginning ties it to the line's beginning.
references/troubleshooting.md is generated from it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from npu_upgrade.gates.serving.answers import in_order
from npu_upgrade.gates.yaml_file import read_yaml
from npu_upgrade.ground.errors import BadInput

DATA = Path(__file__).with_name("signatures.yaml")
_KNOWN_LINES = 4096  # a flood repeats few lines
_WORDS = re.compile(r"\w+")


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One error: ``wrapper`` only passes on another error, ``generic`` yields to any that says more."""

    id: str
    area: str
    texts: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    cause: str
    next: str
    source: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    versions: str
    wrapper: bool = False
    generic: bool = False

    def as_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "cause": self.cause,
            "next_step": self.next,
            "source": list(self.source),
            "versions": self.versions,
        }


class Matcher:
    """Finds the signature of a line; roots before wrappers, and each in the order of the data.

    Texts are indexed by one of their words, so that a line costs its own words and not all texts.
    """

    def __init__(self, signatures: Iterable[Signature]) -> None:
        self._by_word: dict[str, list[_Text]] = {}
        every = sorted(signatures, key=lambda one: one.wrapper)
        texts = [(text, one) for one in every for text in one.texts]
        for order, (text, one) in enumerate(texts):
            parts = tuple(part for part in text.removeprefix("^").split("*") if part)
            entry = _Text(order, text.startswith("^"), parts, one)
            self._by_word.setdefault(_word(parts), []).append(entry)
        self._seen: dict[str, Signature | None] = {}

    def find(self, line: str) -> Signature | None:
        if line in self._seen:
            return self._seen[line]
        hits = [
            text
            for word in set(_WORDS.findall(line))
            for text in self._by_word.get(word, ())
            if text.fits(line)
        ]
        found = min(hits).signature if hits else None
        if len(self._seen) >= _KNOWN_LINES:
            self._seen.clear()
        self._seen[line] = found
        return found


@dataclass(frozen=True, order=True)
class _Text:
    """A text as its parts in their order; ``start``: the first one begins the line."""

    order: int
    start: bool
    parts: tuple[str, ...]
    signature: Signature = field(compare=False)

    def fits(self, line: str) -> bool:
        return not (self.start and not line.startswith(self.parts[0])) and not in_order(line, self.parts)


def _word(parts: Sequence[str]) -> str:
    """The longest word that stands whole in a text: one at the edge of a part may go on in the line."""
    whole = [
        found
        for part in parts
        for found in _WORDS.finditer(part)
        if found.start() > 0 and found.end() < len(part)
    ]
    some = whole or [found for part in parts for found in _WORDS.finditer(part)][:1]
    return max((found.group() for found in some), key=len)


@functools.cache
def signatures(path: Path = DATA) -> tuple[Signature, ...]:
    """All signatures; raises :class:`BadInput` when the data does not hold together."""
    found = read_yaml(path, tuple[Signature, ...], _wrong)
    ids = [one.id for one in found]
    twice = {one for one in ids if ids.count(one) > 1}
    if twice:
        raise _wrong(path, f"the same id twice: {', '.join(sorted(twice))}")
    empty = [one.id for one in found if not all(map(_parts_of, one.texts))]
    if empty:
        raise _wrong(path, f"with an empty text: {', '.join(empty)}")
    return found


def _parts_of(text: str) -> str:
    return text.removeprefix("^").replace("*", "").strip()


def _wrong(path: Path, what: str) -> BadInput:
    return BadInput(
        f"{path.name} does not hold together: {what}",
        expected="a list of signatures with id, area, texts, cause, next, source and versions",
        try_="correct the entry, or restore the file",
    )


PAGE = "troubleshooting.md"
_HEAD = """# Troubleshooting a server

Generated from `scripts/npu_upgrade/gates/serving/signatures.yaml` by
`upgrade.py explain --update-references`; edit the data, not this file.

`upgrade.py explain LOG` finds the first root cause of a log by itself. The last lines of a log are nearly
always wrappers (the last table): they pass on an error that stands further up, or in the lines of another
process. `*` stands for anything on the line. Versions: where the text was found or reported, not a
promise about others.
"""
_COLUMNS = "| id | the log says | cause | next step | source | versions |\n|---|---|---|---|---|---|\n"
_TITLES = {
    "memory": "Memory",
    "native": "Native crashes",
    "host": "Host",
    "device": "Device, driver and CANN",
    "versions": "Installed versions that do not go together",
    "model": "The model and its files",
    "quantization": "Quantization and dtype",
    "configuration": "Configuration",
    "network": "Ports, ranks and collectives",
    "graph": "Graphs and compilation",
    "operators": "Operators and kernels",
    "engine": "Runner and engine code",
    "omni": "Stages of vllm-omni",
    "wrapper": "Wrappers: never the cause",
}


def render(signatures: Sequence[Signature]) -> str:
    """The whole page: one table for each area, in the order of the data."""
    areas = dict.fromkeys(one.area for one in signatures)
    tables = [_section(area, [one for one in signatures if one.area == area]) for area in areas]
    roots = sum(not one.wrapper for one in signatures)
    return f"{_HEAD}\n{roots} root causes, {len(signatures) - roots} wrappers.\n\n" + "\n".join(tables)


def _section(area: str, entries: Sequence[Signature]) -> str:
    rows = "".join(_row(one) for one in entries)
    return f"## {_TITLES[area]}\n\n{_COLUMNS}{rows}"


def _row(one: Signature) -> str:
    texts = "<br>".join(f"`{text.removeprefix('^').replace('`', chr(39))}`" for text in one.texts)
    cells = (f"`{one.id}`", texts, one.cause, one.next, "<br>".join(one.source), one.versions)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
