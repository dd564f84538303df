"""Structural edits of a released tree, as an incident's recipe records them.

An edit names its tree (``in``), file (``path``), definition (``at``), what to do (``do``)
and the arguments of that; an edit that does not find exactly its place is an error. The
edited tree is an overlay: nothing is written to disk, and no code of others is stored.
"""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from bench.edit_calls import CALL_EDITS
from bench.edit_definitions import DEFINITION_EDITS
from bench.edit_places import Text
from bench.edit_statements import STATEMENT_EDITS
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.sources.tree import SourceTree, open_source

EDITS = CALL_EDITS | STATEMENT_EDITS | DEFINITION_EDITS
Edit = dict[str, Any]


def edited(tree: SourceTree, edits: Sequence[Edit]) -> SourceTree:
    """The tree with ``edits`` applied in order; :class:`BadInput` names the edit that does not fit."""
    texts: dict[str, str] = {}
    for edit in edits:
        path = edit["path"]
        texts[path] = apply(path, texts.get(path) or tree.read(path), edit)
    mark = sha256(json.dumps(list(edits), sort_keys=True))[:12]
    return dataclasses.replace(
        tree,
        spec=f"{tree.spec}+edited-{mark}",
        archive_sha256=None,
        sha=None,
        verified=None,
        root=None,
        _bytes=lambda path: texts[path].encode() if path in texts else tree._bytes(path),
    )


def apply(path: str, source: str, edit: Edit) -> str:
    """One file's text after one edit; it is still Python, and not the same."""
    if edit["do"] in ("take-definition", "add-definition"):
        edit = edit | {"code": taken(edit)}
    if edit["do"] not in EDITS:
        raise BadInput(
            f"no edit {edit['do']}", expected=f"one of {', '.join(sorted(EDITS))}", try_="check do"
        )
    text = Text(path, source)
    result = text.replaced(EDITS[edit["do"]](text, text.definition(edit.get("at", "")), edit))
    try:
        ast.parse(result)
    except SyntaxError as error:
        text.missing(f"{edit['do']} leaves no Python: line {error.lineno}: {error.msg}")
    if result == source:
        text.missing(f"{edit['do']} changes nothing")
    return result


def taken(edit: Edit) -> str:
    """The text of the definition of another release that an edit asks for, without its indent."""
    path = edit.get("from_path", edit["path"])
    text = Text(path, open_source(edit["from"]).read(path))
    node = text.definition(edit.get("from_at", edit["at"]))
    if isinstance(node, ast.Module):
        text.missing("the edit names no definition of the other release")
    start, end = text.whole_lines(node)
    indent = text.indent(node)
    lines = text.source[start:end].splitlines(keepends=True)
    return "".join(line.removeprefix(indent) for line in lines)
