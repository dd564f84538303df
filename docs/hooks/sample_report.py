"""Puts the page of a sample job into the site, made by the real commands while the site is built."""

from __future__ import annotations

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from sample_job import make_page
from sample_world import SampleError

PLACE = "sample-report/upgrade.html"
SOURCES = "../../lab/sample/README.md"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the page; the build fails where it cannot be made."""
    try:
        page = make_page()
    except SampleError as error:
        raise PluginError(f"the sample report: {error}") from error
    files.append(File.generated(config, PLACE, content=page))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Point the link to the sources, which is for readers of the repository, to the page made of them."""
    if page.file.src_uri != "sample-report.md":
        return markdown
    return markdown.replace(f"({SOURCES})", f"({PLACE})")
