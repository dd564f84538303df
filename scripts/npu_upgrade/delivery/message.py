"""The message of a delivered commit: a title by the project's rule, sections, what people added, trailers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from npu_upgrade.delivery.place import Place
from npu_upgrade.evidence.chain import Record
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import first_of

VALIDATION = "NPU-Validation"
LIMIT = 100
# Used when the checkout at hand does not say (vllm-ascend v0.18 to 2026-08, vllm-omni 0.12 to 0.22).
_ASCEND = ("BugFix", "Performance", "Test", "CI", "Feature", "Doc", "Misc", "Community", "Refactor")
_OMNI = ("Bugfix", "CI/Build", "Doc", "Model", "Frontend", "Kernel", "Core", "Hardware", "Misc")
WIDTH = 72
MOST_LINES = 12
SHOWN = 60
_TRAILER = re.compile(r"[A-Z][a-z]*(-[A-Za-z]+)+: \S")  # Reviewed-by: and its like


@dataclass(frozen=True)
class Section:
    """A paragraph of the message, left out without ``items``. ``detail`` follows the heading: ``(3)``."""

    heading: str
    items: Sequence[str]
    detail: str = ""

    @property
    def text(self) -> str:
        heading = f"{self.begin}{self.detail}:" if self.detail else self.begin
        return "\n".join([heading, *map(_item, self.items)])

    @property
    def begin(self) -> str:
        """How the paragraph begins, whatever the detail of it was in an earlier message."""
        return f"{self.heading} " if self.detail else f"{self.heading}:"


def counted(heading: str, items: Sequence[str]) -> Section:
    """A section that says how many items it has, and shows the first of them."""
    return Section(heading, first_of(items, SHOWN), f"({len(items)})")


def evidence(records: Sequence[tuple[str, Record]]) -> Section:
    """The verdicts that a delivery rests on, each with the name of the model, where there are several, and
    with the tree that it judged, where they judged several.
    """
    trees = list(dict.fromkeys(one.tree[:12] for _, one in records))
    items = [
        f"{of and f'{of}: '}{one.label}: {one.gate} {one.verdict} (record {one.id[:12]})"
        f"{f' of tree {one.tree[:12]}' if len(trees) > 1 else ''}: {one.summary}"
        for of, one in records
    ]
    return Section("Evidence for", items, f"tree {trees[0]}" if len(trees) == 1 else f"{len(trees)} trees")


def compose(
    place: Place,
    title: str | None,
    about: str,
    tags: Sequence[str],
    sections: Sequence[Section],
    validation: str,
) -> str:
    """The whole message but for the sign-off, which git adds as the last trailer.

    The title is the one given, else that of the earlier delivery, else ``about`` with the first of ``tags``
    that the project has. What people wrote into the commit that this one replaces is kept. Raises
    :class:`BadInput` for a title against the rule.
    """
    earlier, rule = place.earlier, rule_for(place.checkout.root)
    text, trailers = _kept(earlier.body, place, sections) if earlier else ([], [])
    default = rule.titled(about, tags)
    parts = [
        check_title(rule, title if title is not None else earlier.title if earlier else default, default)
    ]
    parts += [section.text for section in sections if section.items] + text
    said = f"{VALIDATION}: {validation}"
    if len(said) > WIDTH:  # git takes a line that begins with a blank for the rest of the trailer above it
        said = said.replace("; ", ";\n ")
    return "\n\n".join([*parts, "\n".join([said, place.marker, *trailers])]) + "\n"


def _kept(body: str, place: Place, sections: Sequence[Section]) -> tuple[list[str], list[str]]:
    """The paragraphs and the trailers of an earlier message that people wrote."""
    ours = (f"{VALIDATION}: ", place.marker, f"Signed-off-by: {place.signer}")
    headings = tuple(section.begin for section in sections)
    text, trailers = [], []
    for paragraph in re.split(r"\n\s*\n", body.strip()):
        lines = re.split(r"\n(?![ \t])", paragraph)  # a trailer may have more lines than one
        others = [line for line in lines if not line.startswith(ours)]
        if len(others) < len(lines) or all(_TRAILER.match(line) for line in lines):
            trailers += others
        elif not paragraph.startswith(headings):
            text.append(paragraph)
    return text, trailers


def _item(text: str) -> str:
    """A list item as git's own messages are wrapped, cut where it gets too long to be read."""
    # wrapped without its dash, which would stand alone before a long path
    lines = textwrap.wrap(text, WIDTH - 2, break_on_hyphens=False, break_long_words=False)
    return "- " + "\n  ".join(lines[:MOST_LINES]) + (" ..." if len(lines) > MOST_LINES else "")


@dataclass(frozen=True)
class TitleRule:
    """The prefixes a project takes: ``anywhere`` in the title, or at its start; none: any title.

    ``types`` are those of its conventional commits (``feat(npu): ...``), which it takes as well.
    """

    project: str = ""
    prefixes: tuple[str, ...] = ()
    anywhere: bool = True
    types: tuple[str, ...] = ()

    def problem(self, title: str) -> str | None:
        """What is wrong with ``title``, or None."""
        if not title.strip() or title != title.strip() or not title.isprintable():
            return "it has to be one line of printable text"
        if len(title) > LIMIT:
            return f"it has {len(title)} characters, more than {LIMIT}"
        # at the start: the tags before the first other word
        place = title if self.anywhere else re.sub(r"^((?:\s*\[[^\[\]]+\])*).*", r"\1", title)
        tags = {tag.lower() for tag in re.findall(r"\[([^\[\]]+)\]", place)}
        if not self.prefixes or tags & {prefix.lower() for prefix in self.prefixes}:
            return None
        if self.types and re.match(rf"({'|'.join(self.types)})(\([\w./-]+\))?!?: \S", title):
            return None
        shown = [f"[{prefix}]" for prefix in self.prefixes]
        as_well = f", or {', '.join(self.types)} with a colon" if self.types else ""
        return f"{self.project} takes a title with one of {', '.join(shown)}{as_well}"

    def titled(self, text: str, tags: Sequence[str]) -> str:
        """A title with the first of ``tags`` that the project has, as it spells it, else the first.

        A tag in small letters is a type of conventional commits.
        """
        known = {prefix.lower(): prefix for prefix in self.prefixes}
        for tag in tags:
            if tag in self.types:
                return f"{tag}: {text[:1].lower()}{text[1:]}"
            if not tag.islower() and tag.lower() in known:
                return f"[{known[tag.lower()]}] {text}"
        return f"[{next(tag for tag in tags if not tag.islower())}] {text}"

    def of_request(self, title: str, tags: Sequence[str]) -> str:
        """The title of the pull request of a commit: its prefixes alone count there."""
        alone = replace(self, types=())
        said = re.sub(r"^\w+(\([^)]*\))?!?: ", "", title) if alone.problem(title) else ""
        return alone.titled(f"{said[:1].upper()}{said[1:]}", tags) if said else title


def rule_for(root: Path) -> TitleRule:
    """The rule of the project checked out at ``root``, read from its own files where they state it."""
    if (root / "vllm_omni").is_dir():
        guide = _text(root / "docs/contributing/README.md")
        stated = re.findall(r"^[-*] `\[([\w/ ]+)\][^`]*`", guide, re.MULTILINE)
        # The list of the contributing guide leaves out NPU, the tag its NPU upgrades carry.
        return TitleRule("vllm-omni", (*(stated or _OMNI), "NPU"), anywhere=False)
    if (root / "vllm_ascend").is_dir():
        flows = map(_text, sorted((root / ".github/workflows").glob("*.y*ml")))
        found = (re.search(r"VALID_PREFIXES='\\\[\(([\w/| -]+)\)\\\]'", flow) for flow in flows)
        listed = next((tuple(one[1].split("|")) for one in found if one), _ASCEND)
        types = re.search(r"Valid Types\W+((?:`\w+`,? ?)+)", _text(root / "AGENTS.md"))
        return TitleRule("vllm-ascend", listed, types=tuple(re.findall(r"\w+", types[1])) if types else ())
    return TitleRule()


def check_title(rule: TitleRule, title: str, example: str) -> str:
    """``title``, or :class:`BadInput` with the project's rule and an ``example`` that keeps it."""
    if problem := rule.problem(title):
        raise BadInput(
            f"the title {title!r} would not be accepted: {problem}",
            expected=f"one line of at most {LIMIT} characters in the project's form",
            try_=f'--title "{example}"',
        )
    return title


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
