"""Renders the page from its template; whatever files hold is text in it, never markup."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment, FileSystemLoader

from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.job import adaptation, upgrade
from npu_upgrade.job.adaptation import Adaptation
from npu_upgrade.job.job import Job
from npu_upgrade.job.stages import Walk
from npu_upgrade.report.adaptation import gather_adaptation
from npu_upgrade.report.gather import MOST_ROWS, gather, shared


@dataclass(frozen=True)
class Page:
    """The text of a page, and the job it is of."""

    walk: Walk
    text: str


def render(job: Job) -> Page:
    """The page of an upgrade."""
    walk = upgrade.walk(job)
    return _page("page.html.j2", walk, gather(job, walk))


def render_adaptation(one: Adaptation) -> Page:
    """The page of a model's adaptation."""
    return _page("adaptation.html.j2", adaptation.walk(one), gather_adaptation(one))


def _page(name: str, walk: Walk, data: dict[str, Any]) -> Page:
    data |= shared(walk) | {"made": utc_now(), "most": MOST_ROWS}
    return Page(walk, template(name).render(**data))


def template(name: str) -> Any:
    """A template of this room; whatever it is given is text in it, never markup."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=ChainableUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["printable"] = printable
    environment.finalize = lambda value: printable(value) if isinstance(value, str) else value
    return environment.get_template(name)


def printable(text: str) -> str:
    """``text`` without what an HTML page may not hold: control characters and lone surrogates."""
    if hasattr(text, "__html__"):
        return text
    return "".join(char if _allowed(ord(char)) else "\N{REPLACEMENT CHARACTER}" for char in text)


def _allowed(code: int) -> bool:
    if code < 32:
        return code in (9, 10, 13)
    return not (
        127 <= code < 160 or 0xD800 <= code < 0xE000 or 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
    )
