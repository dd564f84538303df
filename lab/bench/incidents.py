"""The incident cases: what each recipe says, the trees it rebuilds, and whether the audit found it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from bench.edits import Edit, edited
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.world import Triple
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.tree import SourceTree, open_source

FOLDER = Path(__file__).resolve().parents[1] / "recipes"
COUNTED = ("A", "S", "P")  # classes that source shows; D, W and V are reported beside
PARTS = ("omni", "ascend", "vllm")
T = TypeVar("T")


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The finding a case is about: checks that should report it (none: any), and words that name it.

    ``owner`` and ``subject`` are whole words (or dotted names), alternatives by ``|``.
    """

    subject: str
    check: str | tuple[str, ...] = ()
    owner: str = ""
    kind: str = ""

    @property
    def checks(self) -> tuple[str, ...]:
        return (self.check,) if isinstance(self.check, str) else self.check

    def fits(self, finding: Finding) -> bool:
        """Whether it is that finding, by one of the checks that should."""
        return (
            (not self.checks or finding.check in self.checks)
            and self.kind in ("", finding.kind)
            and self.names(f"{finding.owner} {finding.subject}", finding.here.path)
        )

    def names(self, text: str, place: str) -> bool:
        """Whether the words of the finding stand in ``text``; its owner may stand in ``place`` too."""
        return _names(self.subject, text) and _names(self.owner, f"{text} {place}")


class Case(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"kind": "class", "specs": "triple"}
):
    """One recipe. ``specs`` and ``baseline`` are specs by ``omni``, ``ascend`` and ``vllm``.

    ``expect`` is None where only a run shows the defect, and for a negative case; ``silent``
    narrows a negative case to one finding (without: no new finding at all). ``first`` is what the first
    run of a blind set said of the case.
    """

    id: str
    incident: str
    kind: Literal["A", "S", "P", "D", "W", "V", ""]
    specs: dict[str, str]
    edits: tuple[Edit, ...]
    note: str
    group: Literal["incident", "gap", "negative"] = "incident"
    baseline: dict[str, str] = {}
    expect: Expect | None = None
    silent: Expect | None = None
    held_out: bool = False
    first: Literal["cause", "new", "lag", "missed", "silent", "told", ""] = ""

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
    return [read_recipe(path, Case) for path in sorted(folder.glob("*.yaml"))]


def read_recipe(path: Path, kind: type[T]) -> T:
    """The content of a file of recipes; :class:`BadInput` names the file and what does not fit."""
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(
            f"{path}: {error}", expected=f"a recipe ({kind})", try_="look at the recipes beside it"
        ) from error


def _names(wanted: str, text: str) -> bool:
    """Whether one of the alternatives stands in ``text`` as a word; true for nothing wanted."""
    alternatives = [re.escape(word) for word in wanted.split("|") if word]
    return not alternatives or bool(re.search(rf"(?<!\w)(?:{'|'.join(alternatives)})(?!\w)", text))
