"""The texts of all deliverables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from npu_upgrade.artifacts.page_text import cell, code, tidy, without_macros
from npu_upgrade.artifacts.tree_form import TreeForm
from npu_upgrade.artifacts.view import ModelView

_TEMPLATES = Path(__file__).parent / "templates"
COMMENT = "issue-comment.md"
REPORT = "report.zh.md"
REPORTS = {
    REPORT: "report.zh.md.j2",
    "runbook.zh.md": "runbook.zh.md.j2",
    COMMENT: "issue-comment.md.j2",
}


def tutorial(view: ModelView, form: TreeForm) -> str:
    """The page of a model in the form of the tree."""
    page = _public(_render(f"tutorial.{form.kind}.md.j2", m=view, t=form), view)
    return without_macros(page, form.version) if form.macros else page


def reports(view: ModelView) -> dict[str, str]:
    """File name -> text of what goes to people beside the commit."""
    texts = {name: _render(template, m=view) for name, template in REPORTS.items()}
    return texts | {COMMENT: _public(texts[COMMENT], view)}


def with_delivery(report: str, **delivery: Any) -> str:
    """The analysis report with the commit in it: ``repo``, ``branch``, ``commit``, ``files`` and so on."""
    return f"{report}\n{_render('delivered.zh.md.j2', **delivery)}"


def _public(page: str, view: ModelView) -> str:
    """What leaves this machine names no folder of it."""
    folder = view.facts.model
    return page.replace(folder, "<YOUR_MODEL_PATH>") if Path(folder).is_absolute() else page


def _render(template: str, **context: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["zh"] = yaml.safe_load((_TEMPLATES / "zh.yaml").read_text("utf-8"))
    environment.filters |= {"cell": cell, "code": code}
    return tidy(environment.get_template(template).render(**context))
