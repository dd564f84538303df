"""Which documentation system a tree has, and what its pages may use; read from the tree itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.ground.errors import BadInput

MODELS = "docs/source/tutorials/models"
READER = "tests/e2e/models/test_lm_eval_correctness.py"  # of accuracy configs
NAV = "mkdocs.yml"
TITLES = "docs/hooks/nav_titles.py"
MATRIX = "docs/source/user_guide/support_matrix/supported_models.md"
_UPSTREAM = "https://github.com/vllm-project/vllm-ascend"
_PAGES = {
    "matrix": (MATRIX,),
    "features": ("docs/source/user_guide/feature_guide/index.md",),
    "installation": ("docs/source/getting_started/installation.md", "docs/source/installation.md"),
    "faqs": ("docs/source/faqs.md",),
    "lm_eval": ("docs/source/developer_guide/evaluation/using_lm_eval.md",),
    "tuning": ("docs/source/developer_guide/performance_and_debug/optimization_and_tuning.md",),
}


@dataclass(frozen=True)
class TreeForm:
    """``kind``: mkdocs or myst. ``tabs``: material, myst, or headings where the system has no tabs.

    ``version``: what stands for the released vllm-ascend in a page, empty where the tree has nothing for it.
    ``links``: the tree's own pages by role, relative to a tutorial, empty when the page is not there.
    ``reader``: whether the tree has the test that reads accuracy configs.
    """

    root: Path
    kind: str
    tabs: str
    version: str
    links: dict[str, str]
    reader: bool = False

    @property
    def macros(self) -> bool:
        """Whether double braces in a page are expanded by the documentation system."""
        return self.version.startswith("{{")


def form_of(root: Path) -> TreeForm:
    """The form of the documents in ``root``; raises :class:`BadInput` when it has none."""
    if not root.is_dir():
        raise BadInput(
            f"no folder {root}", expected="a checkout of vllm-ascend", try_="--tree DIR of the checkout"
        )
    links = {role: _link(root, pages) for role, pages in _PAGES.items()}
    reader = (root / READER).is_file()
    nav, index = _text(root / NAV), _text(root / MODELS / "index.md")
    if nav and (root / "docs/source").is_dir():
        tabs = "material" if "pymdownx.tabbed" in nav else "headings"
        version = "{{ vllm_ascend_version }}" if re.search(r"^\s*- macros\b", nav, re.MULTILINE) else ""
        return TreeForm(root, "mkdocs", tabs, version, links, reader)
    if "{toctree}" in index:
        conf = _text(root / "docs/source/conf.py")
        version = "|vllm_ascend_version|" if "vllm_ascend_version" in conf else ""
        return TreeForm(
            root, "myst", "myst" if "sphinx_design" in conf else "headings", version, links, reader
        )
    raise BadInput(
        f"{root} has no documentation that a tutorial can join",
        expected=f"{NAV} with docs/source beside it, or {MODELS}/index.md with a toctree",
        try_="--tree DIR of a whole checkout of vllm-ascend (a sparse one may lack docs)",
    )


def delivery_problem(root: Path, name: str) -> BadInput | None:
    """Why the commit of the model ``name`` cannot be made in ``root``, with what makes a place for it."""
    why = "" if root.is_dir() else f"there is no folder {root}"
    why = why or ("" if (root / ".git").exists() else f"{root} is no checkout of git")
    if not why:
        try:
            form_of(root)
        except BadInput as error:
            why = error.what
    if not why:
        return None
    made = f"git clone {_UPSTREAM} vllm-ascend && git -C vllm-ascend switch -c adapt-{name}"
    return BadInput(
        why,
        expected="a clone of vllm-ascend, with its documents, on a branch of its own",
        try_=f"{made}, then the plan with --delivery vllm-ascend",
    )


def _link(root: Path, pages: tuple[str, ...]) -> str:
    there = next((page for page in pages if (root / page).is_file()), None)
    return f"../../{there.removeprefix('docs/source/')}" if there else ""


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return ""
