"""Which files of a tree hold a word, so that the few names that are in doubt are not looked for in all texts.

It is kept: of a release or a commit for good, of a folder as it was once, corrected by what changed since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.held import held
from npu_upgrade.ground.kept import keep, kept
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.sources.content import lasting
from npu_upgrade.sources.tree import SourceTree

_WORD = re.compile(r"\w+")
_MOST_CHANGED = 50
_LAYOUT = 1  # raise it when what is kept changes


class _Kept(msgspec.Struct):
    """``digests``: path -> SHA-256 of its text, in order; ``words``: word -> the numbers of those paths."""

    digests: dict[str, str]
    words: dict[str, msgspec.Raw]


class Words:
    """The words of the Python files of one tree, as they were when it was made."""

    def __init__(self, tree: SourceTree) -> None:
        self._texts = dict(tree.over[1]) if tree.over else {}
        self._below = words_of(tree.over[0]) if tree.over else None
        self._kept = _Kept({}, {}) if tree.over else self._look_up(tree)

    def of(self, word: str) -> list[str]:
        """The paths of the files that hold a whole word, in order."""
        return sorted(self._of([word]))

    def holding(self, text: str) -> list[str]:
        """The paths of the files that have all words of a text, each as a part of a word too, in order."""
        return sorted(set.intersection(*map(self._having, _WORD.findall(text))))

    @held
    def _having(self, part: str) -> set[str]:
        return self._of(self._with(part))

    def _of(self, words: Iterable[str]) -> set[str]:
        words = list(words)
        found = self._below._of(words) if self._below else set()
        for word in words:
            if word in self._kept.words:
                found |= {self._paths[n] for n in msgspec.json.decode(self._kept.words[word])}
        found -= self._texts.keys()
        return found | {path for path, own in self._own.items() if not own.isdisjoint(words)}

    def _with(self, part: str) -> set[str]:
        """The words that have a part."""
        found = self._below._with(part) if self._below else set()
        place = self._all.find(part)
        while place >= 0:
            end = self._all.index("\n", place)
            found.add(self._all[self._all.rindex("\n", 0, place) + 1 : end])
            place = self._all.find(part, end)
        return found

    @cached_property
    def _paths(self) -> list[str]:
        return list(self._kept.digests)

    @cached_property
    def _own(self) -> dict[str, set[str]]:
        """The words of the files that are not as they are kept."""
        return {path: set(_WORD.findall(text)) for path, text in self._texts.items() if text is not None}

    @cached_property
    def _all(self) -> str:
        own = (word for words in self._own.values() for word in words)
        return "\n".join(["", *self._kept.words, *own, ""])

    def _look_up(self, tree: SourceTree) -> _Kept:
        content = lasting(tree)
        name = sha256(repr(content or ["folder", str(tree.root or tree.spec)]))[:24]
        place = cache_root() / "words" / f"{name}-{_LAYOUT}.json"
        found = kept(place, _Kept)
        if content and found:
            return found
        texts = {path: _text(tree, path) for path in tree.list() if path.endswith(".py")}
        digests = {path: sha256(text) for path, text in texts.items()}
        if found:
            changed = {path for path, digest in digests.items() if found.digests.get(path) != digest}
            gone = found.digests.keys() - digests.keys()
            if len(changed) + len(gone) <= _MOST_CHANGED:
                self._texts = dict.fromkeys(gone) | {path: texts[path] for path in changed}
                return found
        return keep(place, _Kept(digests, _numbered(texts)))


@held
def words_of(tree: SourceTree) -> Words:
    """Those of a tree."""
    return Words(tree)


def _text(tree: SourceTree, path: str) -> str:
    try:
        return tree.read(path)
    except BadInput:
        return ""


def _numbered(texts: Mapping[str, str]) -> dict[str, msgspec.Raw]:
    found: dict[str, list[int]] = {}
    for number, text in enumerate(texts.values()):
        for word in set(_WORD.findall(text)):
            found.setdefault(word, []).append(number)
    return {word: msgspec.Raw(msgspec.json.encode(numbers)) for word, numbers in found.items()}
