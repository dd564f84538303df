"""Shows SKILL.md and the references in the site as they are, so that nothing is written twice.

They lie outside the folder of the site's own pages. Links of all pages are written for people who read the
repository; here they are pointed to the pages of the site, and links to what is no page become plain text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
SHOWN = {ROOT / "SKILL.md": "skill.md", ROOT / "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\((?![a-z]+:)([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages from outside."""
    for path, name in outside().items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def outside() -> dict[Path, str]:
    """Each page from outside with its place in the site."""
    return SHOWN | {path: f"references/{path.name}" for path in sorted((ROOT / "references").glob("*.md"))}


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Point the links of a page to pages of the site; a skill's frontmatter is no text."""
    here = Path(page.file.abs_src_path or "")
    places = outside() | {
        path: path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md")
    }

    def pointed(match: re.Match[str]) -> str:
        target = (here.parent / match[2]).resolve()
        if target not in places:
            return match[0] if target.is_relative_to(config.docs_dir) else match[1]
        start = os.path.dirname(page.file.src_uri) or "."
        return f"[{match[1]}]({os.path.relpath(places[target], start)}{match[3] or ''})"

    parts = _FENCE.split(_HEAD.sub("", markdown))
    return "".join(part if number % 2 else _LINK.sub(pointed, part) for number, part in enumerate(parts))
