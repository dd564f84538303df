"""The lines of a project's other files that pin the version of upstream it was on, and what they become.

Nothing lists these files: a line is found by the old version and the project whose version it is said to be.
What a page says of the past (a table of releases, the notes of one) stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.items import Change, Item, item_id
from npu_upgrade.sources.checkout import open_checkout
from npu_upgrade.sources.tree import SourceTree

PIN = "pin"
_LARGEST = 2_000_000
_NEAR = 3
"""So many lines above one without a name may say whose version it has."""
_DEEPEST = 6
_NUMBER = r"(?<![\w.])v?\d+(?:\.\w+)+"
_VERSION = re.compile(rf"{_NUMBER}(?![\w])")
_GIVEN = re.compile(r"([\w./-]+)[\"'`]?(?:\[[\w,]+\])?\s*(===?|[:=@|])\s*[\"'`]?\s*$")
_ANY = {
    "version",
    "tag",
    "rev",
    "ref",
    "branch",
    "default",
    "value",
    "release",
    "checkout",
    "commit",
    "specifier",
}
"""Words that something is given to, whoever it is of."""
_PAST = re.compile(
    r"(?:\b(?:since|before|after|until|prior to|introduced in)\b[^.;,|]{0,20}|(?:[<>!]=?|~=)[\s\"'`]*v?)$",
    re.I,
)
"""What comes before a version that is a bound, and not the one in use."""
_DOCUMENTS = {".md", ".rst", ".txt", ".mdx"}
_TRANSLATIONS = {".po", ".pot", ".svg"}


@dataclass(frozen=True)
class Move:
    """A project that is upgraded, with the versions (or commits) that it had and the one it gets."""

    project: str
    old: tuple[str, ...]
    new: str


@dataclass(frozen=True)
class Pinned:
    """A line that pins an old version; ``why`` a person has to change it: no edit of this line is enough."""

    path: str
    line: int
    change: Change
    project: str
    why: str = ""


def pinned_in(tree: SourceTree, moves: Sequence[Move]) -> list[Pinned]:
    """The lines of all files but Python that pin an old version of one of the projects."""
    paths = [path for path in tree.list() if not path.endswith(".py") and _suffix(path) not in _TRANSLATIONS]
    ignored = _ignored(tree.root)
    paths = [path for path in paths if not path.startswith(ignored)]
    found: list[Pinned] = []
    for path, data in tree.contents(paths).items():
        if len(data) <= _LARGEST and any(old.encode() in data for move in moves for old in move.old):
            try:
                found += pins_of_file(path, data.decode("utf-8"), moves)
            except UnicodeDecodeError:
                continue
    return found


def _ignored(root: Path | None) -> tuple[str, ...]:
    """The files and folders of a checkout that git ignores, an installed skill among them."""
    if root is None:
        return ()
    try:
        listing = open_checkout(root).ask("ls-files", "-z", "-oi", "--exclude-standard", "--directory")
    except BadInput:  # a folder that is no checkout
        return ()
    return tuple(filter(None, (listing or "").split("\0")))


def pins_of_file(path: str, text: str, moves: Sequence[Move]) -> Iterator[Pinned]:
    """The lines of one file that pin an old version."""
    lines = text.split("\n")
    names = _names(moves)
    for at, line in enumerate(lines):
        now, found = line, None
        for move in moves:
            for span in reversed(list(_places(line, move))):
                if _whose(path, lines, at, span[0], names) == move.project and not _of_the_past(
                    path, lines, at, move
                ):
                    written = line[span[0] : span[1]]
                    prefix = "v" if written.startswith("v") and not _is_commit(move.new) else ""
                    now = now[: span[0]] + prefix + move.new + now[span[1] :]
                    found = move
        if found:
            yield Pinned(path, at + 1, Change(line, now), found.project, _by_hand(path, lines, at, found))


def pin_items(found: Sequence[Pinned]) -> list[Item]:
    """An item for each file: its lines before and after."""
    by_path: dict[tuple[str, str], list[Pinned]] = {}
    for one in found:
        by_path.setdefault((one.path, one.why), []).append(one)
    items = []
    for (path, why), pins in by_path.items():
        changes = list(dict.fromkeys(one.change for one in pins))
        names = ", ".join(dict.fromkeys(one.project for one in pins))
        title = f"{path}: pins {names} as it was" + (f": {why}" if why else "")
        lines = "\n".join(f"-{one.old}\n+{one.new}" for one in changes)
        texts = [text for one in changes for text in (one.old, one.new)]
        items.append(
            Item(item_id(PIN, path, *texts), PIN, title, lines, path, changes=[] if why else changes)
        )
    return items


def repinned(text: str, changes: Sequence[Change]) -> str:
    """A file with its lines changed; those that are not there any more are left alone."""
    becomes = {one.old: one.new for one in changes}
    return "\n".join(becomes.get(line, line) for line in text.split("\n"))


def _places(line: str, move: Move) -> Iterator[tuple[int, int]]:
    for old in move.old:
        for found in re.finditer(rf"(?<![\w.])v?{re.escape(old)}(?!\w|\.\w|\+\w)", line):
            yield found.span()


def _names(moves: Sequence[Move]) -> Mapping[str, re.Pattern[str]]:
    """Each project with how it is written: its words in any case, joined by anything or nothing."""
    return {
        move.project: re.compile(
            rf"(?<![a-z]){'[-_ ]?'.join(map(re.escape, re.split(r'[-_]', move.project)))}(?![a-z])",
            re.IGNORECASE,
        )
        for move in moves
    }


def _whose(path: str, lines: Sequence[str], at: int, start: int, names: Mapping[str, re.Pattern[str]]) -> str:
    """The project whose version stands there: of what it is given to, else the nearest that is named."""
    before = lines[at][:start]
    given = _GIVEN.search(before)
    if given and not {word.lower() for word in re.split(r"[\W_]+", given[1])} <= _ANY:
        whole = given[1].rpartition("/")[2].lower().replace("_", "-")
        if given[2].startswith("==") or "/" in given[1]:  # the name of a package, or of an image
            return whole if whole in names else ""
        return _last(given[1], names)
    if found := _last(before, names):
        return found
    if found := _first(lines[at][start:], names):
        return found
    column = _indent(lines[at])
    for line in reversed(lines[max(0, at - _NEAR) : at]):
        if line.strip() and _indent(line) > column:
            break
        if found := _last(line, names):
            return found
    return _last(PurePosixPath(path).name, names) if len(lines) <= _NEAR else ""


def _last(text: str, names: Mapping[str, re.Pattern[str]]) -> str:
    found = _mentions(text, names)
    return found[-1][1] if found else ""


def _first(text: str, names: Mapping[str, re.Pattern[str]]) -> str:
    found = _mentions(text, names)
    return found[0][1] if found else ""


def _mentions(text: str, names: Mapping[str, re.Pattern[str]]) -> list[tuple[int, str]]:
    """Where projects are named; one whose name begins as that of another is not it."""
    places: dict[int, tuple[int, str]] = {}
    for name, pattern in names.items():
        for found in pattern.finditer(text):
            end, _ = places.get(found.start(), (0, ""))
            if found.end() > end:
                places[found.start()] = (found.end(), name)
    return [(start, name) for start, (_, name) in sorted(places.items())]


def _of_the_past(path: str, lines: Sequence[str], at: int, move: Move) -> bool:
    """Whether a line of a document tells what was: a row or a heading of another release, or plain prose."""
    line = lines[at]
    if any(_PAST.search(line.partition(old)[0]) for old in move.old if old in line):
        return True
    if _suffix(path) not in _DOCUMENTS:
        return False
    if line.lstrip().startswith("|"):
        first = line.strip().strip("|").split("|")[0]
        return bool(_VERSION.search(first))
    return any(_VERSION.search(heading) for heading in _above(lines, at))


def _above(lines: Sequence[str], at: int) -> Iterator[str]:
    """The headings that a line of a document stands below, the nearest first."""
    depth = _DEEPEST + 1
    for line in reversed(lines[: at + 1]):
        level = len(line) - len(line.lstrip("#"))
        if 0 < level < depth and line[level : level + 1] == " ":
            depth = level
            yield line


def _by_hand(path: str, lines: Sequence[str], at: int, move: Move) -> str:
    """Why a line alone cannot be changed: what is locked has hashes and addresses of its version."""
    near = "\n".join(lines[at : at + 4])
    if _suffix(path) == ".lock" or "--hash=" in near or PurePosixPath(path).name.endswith("-lock.json"):
        return f"it is locked with what belongs to it; lock it again with {move.project} {move.new}"
    return ""


def _is_commit(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-f]{40}", text))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()
