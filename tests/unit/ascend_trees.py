"""Copies of vllm-ascend's documents and accuracy tests, from its releases on the package index."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from npu_upgrade.sources.tree import open_source

OLD, NEW = "0.18.0", "0.30.0rc2"
_PARTS = (
    "docs",
    "mkdocs.yml",
    ".markdownlint.yaml",
    "tools",
    ".github",
    "tests/e2e/models",
    "tests/e2e/nightly",
)
_IMAGE = re.compile(r"""(?:\]\(<?|src=["'])(?!https?:)([^)<>"'\s]+\.(?:png|jpe?g|gif|svg))""")


def copy(version: str, folder: Path) -> Path:
    """What of a release a tutorial touches, to write in."""
    root = open_source(f"pypi:vllm-ascend=={version}").root
    assert root
    for part in _PARTS:
        source = root / part
        if source.is_dir():
            shutil.copytree(source, folder / part)
        elif source.is_file():
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / part)
    return folder


def add_what_releases_lack(tree: Path) -> None:
    """The theme's folder and the pictures, which the archive leaves out: empty ones are enough to link."""
    (tree / "docs/overrides").mkdir(exist_ok=True)
    for page in (tree / "docs/source").rglob("*.md"):
        for target in _IMAGE.findall(page.read_text("utf-8")):
            picture = (page.parent / target).resolve()
            if picture.is_relative_to(tree.resolve()) and not picture.exists():
                picture.parent.mkdir(parents=True, exist_ok=True)
                picture.write_bytes(b"")
