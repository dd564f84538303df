"""Renders the page from its template; whatever files hold is text in it, never markup."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment, FileSystemLoader
from markupsafe import Markup

from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground.tables import count
from npu_upgrade.job import adaptation, upgrade
from npu_upgrade.job.adaptation import Adaptation
from npu_upgrade.job.job import Job
from npu_upgrade.job.stages import Walk
from npu_upgrade.report.adaptation import gather_adaptation
from npu_upgrade.report.gather import MOST_ROWS, gather, timeline

HTML, MARKDOWN = "html", "md"
FEW = 5  # so many items of a list are shown at once
ANSWERS = {
    "": "nobody answered",
    "accept": "taken",
    "by-hand": "the NPU side has it in a form of its own",
    "leave": "left to the next upgrade",
    "waive": "not wanted on the NPU side",
}
APART = {"LAG": "that the versions before have too", "NOTE": "that are advice"}


@dataclass(frozen=True)
class Page:
    """The text of a page, and the job it is of."""

    walk: Walk
    text: str


def render(job: Job, form: str = HTML) -> Page:
    """The page of an upgrade, or (``MARKDOWN``) its first screen for a pull request."""
    walk = upgrade.walk(job)
    return _page("page", walk, gather(job, walk), form)


def render_adaptation(one: Adaptation, form: str = HTML) -> Page:
    """The same of a model's adaptation."""
    walk = adaptation.walk(one)
    return _page("adaptation", walk, gather_adaptation(one, walk), form)


def _page(name: str, walk: Walk, data: dict[str, Any], form: str) -> Page:
    data |= {
        "timeline": timeline(walk),
        "made": utc_now(),
        "most": MOST_ROWS,
        "few": FEW,
        "apart": APART,
        "answers": ANSWERS,
    }
    page = template(f"{name}.html.j2") if form == HTML else template("first.md.j2", escape=False)
    return Page(walk, page.render(**data))


def template(name: str, *, escape: bool = True) -> Any:
    """A template of this room; whatever it is given is text in it, never markup."""
    return _environment(escape).get_template(name)


@functools.cache  # it keeps the templates that it compiled
def _environment(escape: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=escape,
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if isinstance(value, str) else value,
    )
    environment.filters |= {"plain": plain, "of": count, "breakable": breakable}
    return environment


def plain(text: str) -> str:
    """``text`` as it stands in Markdown on one line, also in a cell of a table: no markup, no HTML."""
    return re.sub(r"([\\`*_\[\]<>|#~@])", r"\\\1", " ".join(text.split()))


def breakable(text: str) -> Markup:
    """A name that may be broken between its words."""
    return Markup("<wbr>").join(re.split(r"(?<=[a-z])(?=[A-Z])", printable(text)))


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
