"""What a merge of one method is made of: statements, conflicts and flags, in order."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from npu_upgrade.code.statements import CONTINUES, Statement, render

Labels = tuple[str, str, str]
"""The names of ours, base and theirs on conflict markers."""


@dataclass(frozen=True, slots=True)
class Flag:
    """An automatic decision that a person should look at, with the texts it chose from."""

    kind: str
    reason: str
    base: str
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A place where both sides changed the same thing; the statements of each side."""

    base: tuple[Statement, ...]
    ours: tuple[Statement, ...]
    theirs: tuple[Statement, ...]
    reason: str

    def texts(self) -> tuple[str, str, str]:
        """The source of base, ours and theirs."""
        return render(self.base), render(self.ours), render(self.theirs)


Piece = Statement | Conflict


@dataclass(frozen=True)
class MergedMethod:
    """The outcome for one method.

    ``pieces`` are in source order; ``automatic`` counts the statements of upstream's that
    the merge brought in, changed, dropped or left out by itself.
    """

    pieces: tuple[Piece, ...]
    flags: tuple[Flag, ...] = ()
    automatic: int = 0

    @property
    def conflicts(self) -> list[Conflict]:
        return [piece for piece in self.pieces if isinstance(piece, Conflict)]

    def text(self, labels: Labels = ("ours", "base", "theirs")) -> str:
        """The method's source, with diff3 markers around conflicts."""
        return render_pieces(self.pieces, labels)


def render_pieces(pieces: Iterable[Piece], labels: Labels) -> str:
    """Source of the pieces, with diff3 markers that carry ``labels`` around conflicts."""
    out: list[str] = []
    run: list[Statement] = []
    for piece in pieces:
        if isinstance(piece, Statement):
            run.append(piece)
            continue
        if run:
            out.append(render(run))
        run = []
        base, ours, theirs = piece.texts()
        out += [f"<<<<<<< {labels[0]}", *_some(ours), f"||||||| {labels[1]}", *_some(base)]
        out += ["=======", *_some(theirs), f">>>>>>> {labels[2]}"]
    return "\n".join([*out, render(run)] if run else out)


def resolved(pieces: Iterable[Piece], side: str) -> list[Statement]:
    """The statements with every conflict decided for one side (``ours`` or ``theirs``)."""
    out: list[Statement] = []
    for piece in pieces:
        out += [piece] if isinstance(piece, Statement) else getattr(piece, side)
    return out


def syntax_error(pieces: Sequence[Piece]) -> int | None:
    """The index of the piece where the source stops being Python, None when it is Python.

    With conflicts, both answers to them must be Python.
    """
    sides = ("ours", "theirs") if any(isinstance(p, Conflict) for p in pieces) else ("ours",)
    for side in sides:
        try:
            ast.parse(as_module(render(resolved(pieces, side))))
        except SyntaxError as error:
            return _piece_at(pieces, side, (error.lineno or 1) - 2)
    return None


def contest(pieces: list[Piece], start: int, end: int, reason: str, own: Set[int] = frozenset()) -> bool:
    """Leave ``pieces[start:end]``, with the blocks that begin there, to a person.

    They are upstream's but for those at the places ``own``, which stay with either answer. False,
    and nothing is changed, where an answer would not be Python.
    """
    top = min((one.indent for one in pieces[start:end] if isinstance(one, Statement)), default=0)
    while end < len(pieces) and _goes_on(pieces[end], top):
        end += 1
    sides: tuple[list[Statement], ...] = ([], [], [])
    for number in range(start, end):
        piece = pieces[number]
        if isinstance(piece, Conflict):
            parts = (piece.base, piece.ours, piece.theirs)
        else:
            parts = ((), (piece,) if number in own else (), (piece,))
        for side, part in zip(sides, parts, strict=True):
            side += part
    changed = [*pieces[:start], Conflict(*map(tuple, sides), reason), *pieces[end:]]
    if syntax_error(changed) is not None:
        return False
    pieces[:] = changed
    return True


def _goes_on(piece: Piece, top: int) -> bool:
    """Whether a piece still belongs to a block that began at the column ``top``."""
    parts = [piece] if isinstance(piece, Statement) else [*piece.theirs, *piece.ours, *piece.base]
    after = parts[0]
    return after.indent > top or (after.indent == top and CONTINUES.match(after.key) is not None)


def as_module(source: str) -> str:
    """An indented method as a module, one line further down than it was."""
    first = next((line for line in source.split("\n") if line.strip()), "")
    return ("if True:\n" if first[:1].isspace() else "\n") + source


def _some(text: str) -> list[str]:
    return [text] if text else []


def _piece_at(pieces: Sequence[Piece], side: str, line: int) -> int:
    seen = 0
    for number, piece in enumerate(pieces):
        part = [piece] if isinstance(piece, Statement) else list(getattr(piece, side))
        seen += render(part).count("\n") + 1 if part else 0
        if line < seen:
            return number
    return max(0, len(pieces) - 1)
