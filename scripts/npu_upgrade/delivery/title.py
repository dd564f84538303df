"""The title of a delivered commit, by the rule of the project it goes to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.ground.errors import BadInput

LIMIT = 100
# Used when the checkout at hand does not say (vllm-ascend v0.18 to 2026-08, vllm-omni 0.12 to 0.22).
_ASCEND = ("BugFix", "Performance", "Test", "CI", "Feature", "Doc", "Misc", "Community", "Refactor")
_OMNI = ("Bugfix", "CI/Build", "Doc", "Model", "Frontend", "Kernel", "Core", "Hardware", "Misc")


@dataclass(frozen=True)
class TitleRule:
    """The prefixes a project takes: ``anywhere`` in the title, or at its start; none: any title."""

    project: str = ""
    prefixes: tuple[str, ...] = ()
    anywhere: bool = True

    def problem(self, title: str) -> str | None:
        """What is wrong with ``title``, or None."""
        if not title.strip() or title != title.strip() or not title.isprintable():
            return "it has to be one line of printable text"
        if len(title) > LIMIT:
            return f"it has {len(title)} characters, more than {LIMIT}"
        # at the start: the tags before the first other word
        place = title if self.anywhere else re.sub(r"^((?:\s*\[[^\[\]]+\])*).*", r"\1", title)
        tags = {tag.lower() for tag in re.findall(r"\[([^\[\]]+)\]", place)}
        if self.prefixes and not tags & {prefix.lower() for prefix in self.prefixes}:
            return f"{self.project} wants one of {', '.join(f'[{p}]' for p in self.prefixes)}"
        return None

    def tag(self, *wanted: str) -> str:
        """The first of ``wanted`` that the project has, as it spells it, else the first."""
        known = {prefix.lower(): prefix for prefix in self.prefixes}
        return next((known[tag.lower()] for tag in wanted if tag.lower() in known), wanted[0])


def rule_for(root: Path) -> TitleRule:
    """The rule of the project checked out at ``root``, read from its own files where they state it."""
    if (root / "vllm_omni").is_dir():
        # The list of the contributing guide leaves out NPU, the tag its NPU upgrades carry.
        return TitleRule("vllm-omni", (*(_from_guide(root) or _OMNI), "NPU"), anywhere=False)
    if (root / "vllm_ascend").is_dir():
        return TitleRule("vllm-ascend", _from_workflows(root) or _ASCEND)
    return TitleRule()


def check_title(rule: TitleRule, title: str, example: str) -> str:
    """``title``, or :class:`BadInput` with the project's rule and an ``example`` that keeps it."""
    problem = rule.problem(title)
    if problem:
        raise BadInput(
            f"the title {title!r} would not be accepted: {problem}",
            expected=f"one line of at most {LIMIT} characters in the project's form",
            try_=f'--title "{example}"',
        )
    return title


def _from_guide(root: Path) -> tuple[str, ...]:
    guide = _text(root / "docs/contributing/README.md")
    return tuple(re.findall(r"^[-*] `\[([\w/ ]+)\][^`]*`", guide, re.MULTILINE))


def _from_workflows(root: Path) -> tuple[str, ...]:
    for path in sorted((root / ".github/workflows").glob("*.y*ml")):
        stated = re.search(r"VALID_PREFIXES='\\\[\(([\w/| -]+)\)\\\]'", _text(path))
        if stated:
            return tuple(stated.group(1).split("|"))
    return ()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
