"""The texts of all deliverables, and what of a run may stand in a page as it is."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment

from npu_upgrade.artifacts.view import ModelView, cause
from npu_upgrade.checkpoint.scaffold import templates
from npu_upgrade.ground.paths import WORK_DIR
from npu_upgrade.job.tree_form import TreeForm

_TEMPLATES = Path(__file__).parent / "templates"
COMMENT = "issue-comment.md"
REPORT = "report.zh.md"
IN_TREE = "docs/adaptations"  # beside the pages of the site
_REPORTS = (REPORT, "runbook.zh.md", COMMENT)


def tutorial(view: ModelView, form: TreeForm) -> str:
    """The page of a model in the form of the tree."""
    page = _public(_render(f"tutorial.{form.kind}.md.j2", m=view, f=view.facts, t=form), view)
    return without_macros(page, form.version) if form.macros else page


def reports(view: ModelView) -> dict[str, str]:
    """File name -> text of what goes to people beside the commit."""
    texts = {name: _render(f"{name}.j2", m=view, f=view.facts) for name in _REPORTS}
    return texts | {COMMENT: _public(texts[COMMENT], view)}


def reports_for_all(view: ModelView) -> dict[str, str]:
    """Path in the tree -> report and runbook, as they go into the commit."""
    texts = reports(view)
    name = view.facts.name
    return {f"{IN_TREE}/{name}.{one}": _public(texts[one], view) for one in _REPORTS if one != COMMENT}


def with_delivery(report: str, **delivery: Any) -> str:
    """The analysis report with the commit in it: ``repo``, ``branch``, ``commit``, ``files`` and so on."""
    return f"{report}\n{_render('delivered.zh.md.j2', **delivery)}"


def _public(page: str, view: ModelView) -> str:
    """What leaves this machine names no folder of it."""
    folder, work = view.facts.model, str(view.best.result.get("work_dir") or "")
    page = page.replace(folder, "<YOUR_MODEL_PATH>") if Path(folder).is_absolute() else page
    return page.replace(work, "<WORK_FOLDER>") if work not in ("", "/", str(WORK_DIR)) else page


def _render(template: str, **context: Any) -> str:
    return tidy(_environment().get_template(template).render(**context))


@functools.cache  # it keeps the templates that it compiled
def _environment() -> Environment:
    words = yaml.safe_load((_TEMPLATES / "zh.yaml").read_text("utf-8"))
    return templates(_TEMPLATES, {"cell": cell, "code": code, "cause": cause}, zh=words)


_MACRO = re.compile(r"\{\{|\{%|\{#")
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_LONGEST_CELL = 300


def cell(value: Any) -> str:
    """A value for a table cell: one line, its bars and angle brackets escaped, not too long to read."""
    text = " ".join(str(value).split())
    text = text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"
    return re.sub(r"([|<*\[\]`\\]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def code(value: Any) -> str:
    """A value as inline code that no backtick or bar in it can leave."""
    text = " ".join(str(value).split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * (longest + 1)
    return f"{marks} {text} {marks}" if longest else f"{marks}{text}{marks}"


def without_macros(page: str, verbatim: str) -> str:
    """``page`` with every double brace that is not ``verbatim`` made one that macros leave alone."""
    kept = page.split(verbatim) if verbatim else [page]
    shown = [_MACRO.sub(lambda match: f"{{{{ '{match[0]}' }}}}", part) for part in kept]
    return verbatim.join(shown)


def tidy(page: str) -> str:
    """No trailing blanks, no two empty lines in a row outside code, one newline at the end."""
    lines: list[str] = []
    fence = ""
    for line in page.splitlines():
        line = line.rstrip()
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and line.strip() == mark[1]:
            fence = ""
        if line or fence or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines).strip("\n") + "\n"
