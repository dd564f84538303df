"""What a check reports: one place that does not hold, with both sides and what to do."""

from __future__ import annotations

import ast
from typing import Any

import msgspec

from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.tables import cut
from npu_upgrade.program.program import ClassSymbol, File, FunctionSymbol, Method


class Side(msgspec.Struct, frozen=True):
    """One side of a difference: a place in a source tree and what stands there, in a few words.

    ``project`` is vllm-omni, vllm-ascend or vllm; ``line`` is 1-based, 0 when the whole file is meant.
    """

    project: str
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.text}" if self.text else place


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One drift.

    ``kind`` names what was seen (``moved``, ``missing-override``, ...).
    ``owner`` is the class (or function, or empty) it is about and ``subject`` the thing itself:
    a method, attribute, import, parameter. ``here`` is where to look first, in the audited
    tree; ``there`` is the other side, None where there is none.
    ``incident`` is the class of incident: A (import or attribute existence), S (signature,
    arity, call site), P (GPU and NPU differ), V (version pins), or empty. ``like`` names a
    public incident of this kind. ``why`` and ``todo`` are one sentence each. ``check`` is the name of the
    check that yields it, which is filled in when the check runs. ``parts`` are what it is made of, where it
    can become worse between two versions.
    """

    kind: str
    owner: str
    subject: str
    what: str
    here: Side
    there: Side | None
    incident: str
    why: str
    todo: str
    like: str = ""
    check: str = ""
    parts: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The same drift in another version of the trees has the same key: no lines, no texts."""
        place = f"{self.here.project}:{self.here.path}"
        return f"{self.check}-{sha256(chr(0).join((self.kind, place, self.owner, self.subject)))[:10]}"

    def as_json(self) -> dict[str, Any]:
        shown = {"key": self.key} | msgspec.to_builtins(self)
        del shown["parts"]  # `what` has those that matter
        return shown


_LONGEST = 160


def side(of: File | ClassSymbol | FunctionSymbol | Method, at: ast.AST | int = 0, text: str = "") -> Side:
    """A file, class or function as one side; ``at`` is a line or node in it, ``text`` what stands there.

    Without them it is where the class or function begins, and its name.
    """
    name = ""
    if isinstance(of, ClassSymbol):
        file, at, name = of.file, at or of.node, f"class {of.name}"
    elif isinstance(of, File):
        file = of
    else:
        file = of.owner.file if isinstance(of, Method) else of.file
        at, name = at or of.node, of.qualname if isinstance(of, Method) else of.node.name
    line = at if isinstance(at, int) else getattr(at, "lineno", 0)
    return Side(file.project, file.path, line, cut(text or name, _LONGEST))
