"""Putting a model where its readers find it: nav, titles, index, matrix; each edit changes nothing else."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from npu_upgrade.artifacts.facts import Facts, Feature
from npu_upgrade.evidence.store import NPU_REAL
from npu_upgrade.gates.features.model import NOT_APPLICABLE, UNSUPPORTED, VERIFIED
from npu_upgrade.gates.performance import loads_of
from npu_upgrade.ground.errors import BadInput

_PAGE = "tutorials/models/"
_WIDTH = 120


def in_nav(text: str, name: str, title: str, old: str | None = None) -> str:
    """``mkdocs.yml`` with the page in its nav: behind the last tutorial, or in a section of its own.

    ``old`` is the title that this command wrote before: an entry that still has it gets the new one.
    """
    page = f"{_PAGE}{name}.md"
    if page in nav_pages(text):
        return (
            text.replace(f"- {_quoted(old)}: {page}\n", f"- {_quoted(title)}: {page}\n", 1) if old else text
        )
    lines = text.splitlines(keepends=True)
    start = next((n for n, line in enumerate(lines) if re.match(r"nav:\s*(#.*)?$", line)), None)
    if start is None:
        raise _unreadable("mkdocs.yml has no nav", "a nav in block form, one page on a line")
    end = next((n for n in range(start + 1, len(lines)) if re.match(r"[^\s#-]", lines[n])), len(lines))
    while end > start + 1 and not re.match(r"\s*-", lines[end - 1]):
        end -= 1
    siblings = [n for n in range(start, end) if re.search(rf"-\s.*\b{_PAGE}[^/]+\.md\s*$", lines[n])]
    if siblings:
        indent, titled = _style(lines[siblings[-1]])
        new = [f"{indent}- {f'{_quoted(title)}: ' if titled else ''}{page}\n"]
        at = siblings[-1] + 1
    else:
        indent = next(
            (_style(lines[n])[0] for n in range(start + 1, end) if re.match(r"\s*-", lines[n])), "  "
        )
        inner = f"{indent}    - "
        new = [
            f"{indent}- Model tutorials:\n",
            f"{inner}{_PAGE}index.md\n",
            f"{inner}{_quoted(title)}: {page}\n",
        ]
        at = end
    changed = "".join([*lines[:at], *new, *lines[at:]])
    if page not in nav_pages(changed):
        raise _unreadable(
            "the nav of mkdocs.yml is not in a form that a line can be added to", "one page on a line"
        )
    return changed


def nav_pages(text: str) -> set[str]:
    """All pages that a ``mkdocs.yml`` names in its nav."""
    try:
        loaded = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise _unreadable(f"mkdocs.yml does not parse: {' '.join(str(error).split())}", "YAML") from error
    return set(_leaves(loaded.get("nav") if isinstance(loaded, dict) else None))


def in_titles(text: str, name: str, title: str, old: str | None = None) -> str:
    """``nav_titles.py`` with the page's title, behind the last tutorial of a model."""
    page = f"{_PAGE}{name}.md"
    try:
        table = _titles(ast.parse(text))
    except SyntaxError as error:
        raise _unreadable(f"nav_titles.py does not parse: {error}", "Python") from error
    keys = [key.value if isinstance(key, ast.Constant) else None for key in table.keys]
    if page in keys:
        return text.replace(_entry(page, old), _entry(page, title), 1) if old else text
    lines = text.splitlines(keepends=True)
    behind = [n for n, key in enumerate(keys) if isinstance(key, str) and key.startswith(_PAGE)]
    # of parsed code every end is known; without a tutorial yet, before the closing brace
    end = (table.values[behind[-1]].end_lineno or 0) if behind else (table.end_lineno or 1) - 1
    new = _entry(page, title)
    changed = "".join([*lines[:end], new, *lines[end:]])
    table = _titles(ast.parse(changed))
    if page not in [key.value for key in table.keys if isinstance(key, ast.Constant)]:
        raise _unreadable(
            "the TITLES of nav_titles.py are not in a form that a line can be added to", "one entry on a line"
        )
    return changed


def in_index(text: str, name: str, title: str, old: str | None = None) -> str:
    """The list of ``index.md`` with an entry for the page; where it has no list, the navigation is one."""
    entry = f"- [{title}]({name}.md)\n"
    if re.search(rf"\]\({re.escape(name)}\.md\)", text):
        return text.replace(f"- [{old}]({name}.md)\n", entry, 1) if old else text
    lines = text.splitlines(keepends=True)
    items = [n for n, line in enumerate(lines) if re.match(r"- \[.*\]\([^)]+\.md\)\s*$", line)]
    return "".join([*lines[: items[-1] + 1], entry, *lines[items[-1] + 1 :]]) if items else text


def in_toctree(text: str, name: str) -> str:
    """``index.md`` of the older form with the page in its toctree."""
    tree = re.search(r"^(:{3,}|`{3,})\{toctree\}\n(.*?)^\1\s*$", text, re.MULTILINE | re.DOTALL)
    if tree is None:
        raise _unreadable("index.md of the model tutorials has no toctree", "a {toctree} directive")
    if re.search(rf"^{re.escape(name)}(\.md)?\s*$", tree[2], re.MULTILINE):
        return text
    return f"{text[: tree.end(2)]}{name}.md\n{text[tree.end(2) :]}"


def in_list(text: str, line: str) -> str:
    """A list, one name on a line, with ``line`` at its end."""
    return text if line in text.splitlines() else f"{text.rstrip()}\n{line}\n"


class _Loader(yaml.SafeLoader):
    """Takes the tags of MkDocs for what they are worth here: nothing."""


_Loader.add_multi_constructor("", lambda loader, suffix, node: None)


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else []
    return [leaf for part in inner for leaf in _leaves(part)]


def _style(line: str) -> tuple[str, bool]:
    """The indentation of a nav entry, and whether it has a title."""
    return line[: len(line) - len(line.lstrip())], bool(re.search(r"-\s+[^:]+:\s", line))


def _quoted(title: str) -> str:
    return title if re.fullmatch(r"[A-Za-z][\w .()+-]*", title) else json.dumps(title, ensure_ascii=False)


def _titles(module: ast.Module) -> ast.Dict:
    for node in module.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        named = any(isinstance(target, ast.Name) and target.id == "TITLES" for target in targets)
        if named and isinstance(node.value, ast.Dict):
            return node.value
    raise _unreadable("nav_titles.py has no TITLES", "a dict of that name at the top level")


def _entry(page: str, title: str) -> str:
    shown = json.dumps(title, ensure_ascii=False)
    one = f'    "{page}": {{"en": {shown}, "zh": {shown}}},\n'
    if len(one) <= _WIDTH:
        return one
    return f'    "{page}": {{\n        "en": {shown},\n        "zh": {shown},\n    }},\n'


def _unreadable(what: str, expected: str) -> BadInput:
    return BadInput(
        what, expected=expected, try_="register the page by hand, then run the same command again"
    )


YES, TRIED, NO, UNKNOWN, NONE = "✅", "🔵", "❌", "🟡", ""
_LINK = "../../tutorials/models/{name}.md"
# column -> feature of the matrix
_FEATURES = {
    "lora": "lora",
    "speculative decoding": "mtp",
    "expert parallel": "expert_parallel",
    "piecewise aclgraph": "graph",
    "fullgraph aclgraph": "graph",
}
# a replayed graph is of one mode or both; the mode stands in what the run resolved
_MODES = {"piecewise aclgraph": "PIECEWISE", "fullgraph aclgraph": "FULL"}


def with_row(text: str, facts: Facts, written: str | None = None) -> tuple[str, str]:
    """The page with the model's row, and the row.

    A row that is there and is not ``written`` (the one this command wrote) belongs to people and stays.
    """
    lines = text.splitlines(keepends=True)
    link = f"]({_LINK.format(name=facts.name)})"
    table = _matrix_table(lines, facts)
    row = _matrix_row(lines[table.start], facts)
    there = next((n for n in range(table.start + 2, table.stop) if link in lines[n]), None)
    if there is None:
        lines.insert(table.stop, row + "\n")
        return "".join(lines), row
    if written is not None and lines[there].rstrip("\n") == written:
        lines[there] = row + "\n"
        return "".join(lines), row
    return text, lines[there].rstrip("\n")


def _matrix_table(lines: list[str], facts: Facts) -> range:
    """The lines of the table that the model belongs to: its head to behind its last row."""
    wanted = "Multimodal Language Models" if facts.multimodal else "Text-Only Language Models"
    kind = "Pooling Models" if facts.pooling else "Generative Models"
    heads: dict[int, str] = {}
    best: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        heading = re.match(r"(#+)\s+(.+?)\s*$", line)
        tab = re.match(r'===\s+"(.+)"', line)
        if heading:
            depth = len(heading[1])
            heads = {above: title for above, title in heads.items() if above < depth} | {depth: heading[2]}
        elif tab:
            heads[9] = tab[1]
        elif _is_head(lines, number) and wanted in heads.values() and kind in heads.values():
            best.append((_fits(heads, facts), number))
    if not best:
        raise BadInput(
            f"the support matrix has no table for {wanted}, {kind}",
            expected="supported_models.md with vllm-ascend's headings",
            try_="add the row by hand, then run the same command again with --keep and that file",
        )
    start = max(best, key=lambda one: (one[0], -one[1]))[1]
    end = next((n for n in range(start, len(lines)) if not lines[n].lstrip().startswith("|")), len(lines))
    return range(start, end)


def _fits(heads: Mapping[int, str], facts: Facts) -> int:
    tab = heads.get(9, "")
    right = "300I" in tab if "300I" in facts.hardware else tab == "A2/A3" or not tab
    return 2 * right + ("Core Supported Models" in heads.values())


def _is_head(lines: list[str], number: int) -> bool:
    following = lines[number + 1] if number + 1 < len(lines) else ""
    return lines[number].lstrip().startswith("|") and bool(re.match(r"\s*\|[\s:|-]+\|\s*$", following))


def _matrix_row(head: str, facts: Facts) -> str:
    indent = _style(head)[0]
    columns = [column.strip() for column in head.strip().strip("|").split("|")]
    return f"{indent}| {' | '.join(_cell_of(column, facts) for column in columns)} |"


def _cell_of(column: str, facts: Facts) -> str:
    key = column.lower()
    resolved = facts.resolved
    if key in _FEATURES:
        feature = next((f for f in facts.features if f.feature == _FEATURES[key]), None)
        verified = feature and feature.status == VERIFIED
        other_mode = verified and _MODES.get(key, "") not in feature.resolved.upper()
        return UNKNOWN if other_mode else _mark(feature)
    fixed = {
        "model": facts.name,
        "support": TRIED if facts.on_npu and not facts.gaps else UNKNOWN,
        "note": _note(facts),
        "supported hardware": facts.hardware.replace("Atlas ", "").replace(" Series", "")
        if facts.on_npu
        else NONE,
        "bf16": _when(facts, str(resolved.get("dtype", "")).endswith("bfloat16")),
        "tensor parallel": _when(facts, (resolved.get("tensor_parallel_size") or 1) > 1),
        "pipeline parallel": _when(facts, (resolved.get("pipeline_parallel_size") or 1) > 1),
        "max-model-len": str(facts.practical_length) if facts.on_npu and facts.practical_length else NONE,
        "doc": f"[{facts.name}]({_LINK.format(name=facts.name)})",
    }
    return fixed.get(key, UNKNOWN)


def _note(facts: Facts) -> str:
    if not facts.on_npu:
        return f"{facts.label or 'no run'}; NPU validation pending"
    if facts.gaps:
        return f"experimental: {', '.join(gap.id for gap in facts.gaps)} open"
    run = facts.shown_by("throughput")
    return loads_of(run)[-1].shown if run else NONE


def _mark(feature: Feature | None) -> str:
    if feature and feature.status == NOT_APPLICABLE:
        return NONE
    marks = {VERIFIED: YES, UNSUPPORTED: NO} if feature and feature.label == NPU_REAL else {}
    return marks.get(feature.status if feature else "", UNKNOWN)


def _when(facts: Facts, served: bool) -> str:
    return YES if facts.on_npu and served else UNKNOWN
