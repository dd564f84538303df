"""What the documents of the skill say: their links, and the commands they tell to run."""

from __future__ import annotations

import re
from pathlib import Path

from npu_upgrade.cli.programs import ADAPT, UPGRADE

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(<?([^)>\s]+)>?(?: \"[^\"]*\")?\)")
COMMANDS: dict[str, dict[str, str]] = {
    program: {module.rpartition(".")[2]: module for module in modules}
    for program, modules in (("upgrade.py", UPGRADE), ("adapt.py", ADAPT))
}
"""The subcommands of each program, and the module of each."""


def skill_documents(root: Path = ROOT) -> list[Path]:
    """What an agent reads: the skill's own page and the pages it points to."""
    return [root / "SKILL.md", *sorted((root / "references").rglob("*.md"))]


def documents() -> list[Path]:
    """All documents a user or an agent reads."""
    names = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "AGENTS.md", "runners/README.md")
    single = [ROOT / name for name in names]
    github = sorted((ROOT / ".github").rglob("*.md"))
    return [*skill_documents(), *single, *github, *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(text: str) -> list[str]:
    """The targets of all links outside code."""
    return LINK.findall(INLINE.sub("", FENCE.sub("", text)))


def broken_links(document: Path) -> list[str]:
    """Relative links to a file or heading that is not there."""
    return [target for target in links(document.read_text()) if not leads_somewhere(document, target)]


def leads_somewhere(document: Path, target: str) -> bool:
    """Whether a link of ``document`` leads to a file or heading that is there; a URL is not asked."""
    if re.match(r"[a-z]+:", target):
        return True
    name, _, anchor = target.partition("#")
    linked = document.parent / name if name else document
    if not linked.exists():
        return False
    return not anchor or linked.suffix != ".md" or anchor in anchors(linked.read_text())


def command_lines(text: str) -> list[str]:
    """The lines of code blocks, joined where they go on, and all inline code."""
    blocks = "\n".join(match[0] for match in FENCE.finditer(text))
    return [*blocks.replace("\\\n", " ").splitlines(), *INLINE.findall(FENCE.sub("", text))]
