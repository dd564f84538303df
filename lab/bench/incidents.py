"""The incident cases: what each recipe says, the trees it rebuilds, and whether the audit found it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench.edits import Edit, edited
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.world import Triple
from npu_upgrade.sources.tree import SourceTree, open_source

FOLDER = Path(__file__).resolve().parents[1] / "recipes"
COUNTED = ("A", "S", "P")  # classes that source shows; D, W and V are reported beside
CLASSES = (*COUNTED, "D", "W", "V", "")
GROUPS = ("incident", "gap", "negative")
PARTS = ("omni", "ascend", "vllm")


@dataclass(frozen=True)
class Expect:
    """The finding a case is about: checks that should report it, and words that name it.

    ``owner`` and ``subject`` are whole words (or dotted names), alternatives by ``|``.
    """

    checks: tuple[str, ...]
    subject: str
    owner: str = ""
    kind: str = ""

    def fits(self, finding: Finding) -> bool:
        """Whether it is that finding, by one of the checks that should."""
        return (
            finding.check in self.checks
            and self.kind in ("", finding.kind)
            and self.names(f"{finding.owner} {finding.subject}", finding.here.path)
        )

    def names(self, text: str, place: str) -> bool:
        """Whether the words of the finding stand in ``text``; its owner may stand in ``place`` too."""
        return _names(self.subject, text) and _names(self.owner, f"{text} {place}")


@dataclass(frozen=True)
class Case:
    """One recipe. ``specs`` and ``baseline`` are specs by ``omni``, ``ascend`` and ``vllm``.

    ``expect`` is None where only a run shows the defect, and for a negative case; ``silent``
    narrows a negative case to one finding (without: no new finding at all).
    """

    id: str
    incident: str
    kind: str
    group: str
    specs: dict[str, str]
    baseline: dict[str, str]
    edits: tuple[Edit, ...]
    expect: Expect | None
    silent: Expect | None
    note: str
    held_out: bool = False

    @property
    def counted(self) -> bool:
        """Whether it counts in the recall."""
        return self.group == "incident" and self.kind in COUNTED and not self.held_out

    @property
    def wanted(self) -> Expect | None:
        """The finding to look for: the expected one, or of a negative case the one to be silent of."""
        return self.silent if self.group == "negative" else self.expect

    @property
    def old(self) -> dict[str, str]:
        """The specs that findings are new against; empty where any finding counts."""
        return self.baseline or (self.specs if self.edits else {})


@dataclass
class Trees:
    """Released trees, opened once."""

    opened: dict[str, SourceTree] = field(default_factory=dict)

    def triple(self, specs: dict[str, str], edits: Iterable[Edit] = ()) -> Triple:
        """The triple of specs, each tree with the edits that are for it."""
        trees = {part: self.tree(specs, part, edits) for part in specs}
        return Triple(trees.get("omni"), trees["ascend"], trees["vllm"])

    def tree(self, specs: dict[str, str], part: str, edits: Iterable[Edit] = ()) -> SourceTree:
        """One tree of a triple, with the edits that are for it."""
        spec = specs[part]
        if spec not in self.opened:
            self.opened[spec] = open_source(spec)
        own = [edit for edit in edits if edit["in"] == part]
        return edited(self.opened[spec], own) if own else self.opened[spec]


def load_cases(folder: Path = FOLDER / "cases") -> list[Case]:
    """All recipes, in the order of their files."""
    return [read_case(yaml.safe_load(path.read_text("utf-8"))) for path in sorted(folder.glob("*.yaml"))]


def read_case(data: dict[str, Any]) -> Case:
    """One recipe's data as a case; KeyError for what is missing."""
    return Case(
        id=data["id"],
        incident=data["incident"],
        kind=data["class"],
        group=data.get("group", "incident"),
        specs=data["triple"],
        baseline=data.get("baseline", {}),
        edits=tuple(data["edits"]),
        expect=_expect(data.get("expect")),
        silent=_expect(data.get("silent")),
        note=data["note"],
        held_out=data.get("held_out", False),
    )


def _expect(data: dict[str, Any] | None) -> Expect | None:
    if data is None:
        return None
    checks = [data["check"]] if isinstance(data["check"], str) else data["check"]
    return Expect(tuple(checks), data["subject"], data.get("owner", ""), data.get("kind", ""))


def _names(wanted: str, text: str) -> bool:
    """Whether one of the alternatives stands in ``text`` as a word; true for nothing wanted."""
    alternatives = [re.escape(word) for word in wanted.split("|") if word]
    return not alternatives or bool(re.search(rf"(?<!\w)(?:{'|'.join(alternatives)})(?!\w)", text))
