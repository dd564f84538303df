"""The title of a delivered commit, by the rule of the project it goes to."""

from __future__ import annotations

import re
from collections.abc import Callable
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

    project: str
    prefixes: tuple[str, ...]
    anywhere: bool
    default: Callable[[str], str]

    def problem(self, title: str) -> str | None:
        """What is wrong with ``title``, or None."""
        if not title.strip() or title != title.strip() or not title.isprintable():
            return "it has to be one line of printable text"
        if len(title) > LIMIT:
            return f"it has {len(title)} characters, more than {LIMIT}"
        tags = re.findall(r"\[([^\[\]]+)\]", title if self.anywhere else _leading_tags(title))
        known = {prefix.lower() for prefix in self.prefixes}
        if known and not known & {tag.lower() for tag in tags}:
            return f"{self.project} wants one of {', '.join(f'[{p}]' for p in self.prefixes)}"
        return None


def rule_for(root: Path) -> TitleRule:
    """The rule of the project checked out at ``root``, read from its own files where they state it."""
    if (root / "vllm_omni").is_dir():
        # The list of the contributing guide leaves out NPU, the tag its NPU upgrades carry.
        prefixes = (*(_from_guide(root) or _OMNI), "NPU")
        return TitleRule("vllm-omni", prefixes, False, lambda to: f"[NPU] Upgrade to vllm-ascend {to}")
    if (root / "vllm_ascend").is_dir():
        return TitleRule(
            "vllm-ascend",
            _from_workflows(root) or _ASCEND,
            True,
            lambda to: f"[Misc] Upgrade the NPU model runners to vllm-ascend {to}",
        )
    return TitleRule("", (), True, lambda to: f"[NPU] Upgrade to vllm-ascend {to}")


def check_title(rule: TitleRule, title: str, example: str | None = None) -> str:
    """``title``, or :class:`BadInput` with the project's rule and an ``example`` that keeps it."""
    problem = rule.problem(title)
    if problem:
        raise BadInput(
            f"the title {title!r} would not be accepted: {problem}",
            expected=f"one line of at most {LIMIT} characters in the project's form",
            try_=f'--title "{example or rule.default("VERSION")}"',
        )
    return title


def _leading_tags(title: str) -> str:
    return re.sub(r"^((?:\s*\[[^\[\]]+\])*).*", r"\1", title)


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
