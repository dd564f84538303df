"""The defects of released pairs that the emulated dry run shows, and which of them a failure may be."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

_FILE = Path(__file__).with_name("known_defects.yaml")


class Beside(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Code of no NPU file that a failure comes of: a pattern, ``reads``, of the file ``path``.

    As a ``race`` it makes an answer come and go; any other ends the run, unless the NPU side works around it.
    """

    path: str
    reads: str
    race: bool = False

    def stands(self, text_of: Callable[[str], str]) -> bool:
        """Whether the file still has the code."""
        return re.search(self.reads, text_of(self.path)) is not None


class KnownDefect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``says`` is a pattern of the failure's text; ``scenario`` and ``tier`` may be left out: any.

    ``fixed_by`` names the recorded upgrade (see the laboratory's file of upgrades) whose fix makes this run
    pass. With ``beside`` it is not the NPU side's to mend.
    """

    ascend: str
    says: str
    incident: str
    omni: str | None = None
    scenario: str | None = None
    tier: str | None = None
    fixed_by: str | None = None
    beside: Beside | None = None

    @property
    def release(self) -> str:
        return f"vllm-omni {self.omni}" if self.omni else f"vllm-ascend {self.ascend}"

    def is_shown_by(self, tier: str, scenario: str, why: str) -> bool:
        """Whether a run that failed so may show this defect, whatever the release."""
        fits = self.scenario in (None, scenario) and self.tier in (None, tier)
        return fits and re.search(self.says, why) is not None


@functools.cache
def known_defects() -> tuple[KnownDefect, ...]:
    """All of them."""
    return msgspec.yaml.decode(_FILE.read_bytes(), type=tuple[KnownDefect, ...])


def met_before(tier: str, scenario: str, why: str) -> str:
    """What failures like this one came of in releases, with their names; empty where nothing is known.

    One text may have several causes: all are told, those that were seen in this scenario first.
    """
    alike = [one for one in known_defects() if one.is_shown_by(tier, scenario, why)]
    causes: dict[str, list[str]] = {}
    for one in sorted(alike, key=lambda one: one.scenario is None):
        causes.setdefault(one.incident, []).append(one.release)
    told = (f"{', '.join(sorted(set(of)))}: {incident}" for incident, of in causes.items())
    return f"known of {'; or of '.join(told)}" if causes else ""


def beside_runners(tier: str, scenario: str, why: str, text_of: Callable[[str], str]) -> str:
    """The known defect beside the NPU side such a failure comes of; empty where its code is not."""
    for one, beside in _beside(tier, scenario, why, text_of):
        return _said(one, "may come and go" if beside.race else "ends")
    return ""


def ended_beside(tier: str, scenario: str, why: str, text_of: Callable[[str], str]) -> bool:
    """Whether such a failure comes of a defect beside the NPU side that is no race: it comes each time."""
    return any(not beside.race for _, beside in _beside(tier, scenario, why, text_of))


def _beside(
    tier: str, scenario: str, why: str, text_of: Callable[[str], str]
) -> Iterator[tuple[KnownDefect, Beside]]:
    """The known defects beside the NPU side that such a failure may come of, whose code is there."""
    for one in known_defects():
        if one.beside and one.is_shown_by(tier, scenario, why) and one.beside.stands(text_of):
            yield one, one.beside


def ends_beside(tier: str, scenario: str, text_of: Callable[[str], str]) -> str:
    """The known defect beside the NPU side in which a run of these files may end; else empty."""
    for one in known_defects():
        named = one.scenario == scenario and one.tier in (None, tier)
        if named and one.beside and not one.beside.race and one.beside.stands(text_of):
            return _said(one, "may end")
    return ""


def _said(defect: KnownDefect, does: str) -> str:
    assert defect.beside
    return f"it {does} by a known defect of {defect.beside.path}, beside the NPU side: {defect.incident}"
