"""The message of a delivered commit: a title, sections, what people added, and trailers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from npu_upgrade.delivery.place import Place
from npu_upgrade.delivery.title import check_title, rule_for
from npu_upgrade.evidence.chain import Record

VALIDATION = "NPU-Validation"
WIDTH = 72
MOST_LINES = 3
SHOWN = 20
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
    more = [f"and {len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return Section(heading, [*items[:SHOWN], *more], f"({len(items)})")


def evidence(records: Sequence[Record]) -> Section:
    """The verdicts that a delivery rests on."""
    items = [f"{r.label}: {r.gate} {r.verdict} (record {r.id[:12]}): {r.summary}" for r in records]
    return Section("Evidence for", items, f"tree {records[0].tree[:12]}")


def compose(
    place: Place, title: str | None, default: str, sections: Sequence[Section], validation: str
) -> str:
    """The whole message but for the sign-off, which git adds as the last trailer.

    The title is the one given, else that of the earlier delivery, else ``default``. What people wrote into
    the commit that this one replaces is kept. Raises :class:`BadInput` for a title against the rule.
    """
    earlier = place.earlier
    text, trailers = _kept(earlier.body, place, sections) if earlier else ([], [])
    chosen = title if title is not None else earlier.title if earlier else default
    parts = [check_title(rule_for(place.checkout.root), chosen, default)]
    parts += [section.text for section in sections if section.items] + text
    return "\n\n".join([*parts, "\n".join([f"{VALIDATION}: {validation}", place.marker, *trailers])]) + "\n"


def _kept(body: str, place: Place, sections: Sequence[Section]) -> tuple[list[str], list[str]]:
    """The paragraphs and the trailers of an earlier message that people wrote."""
    ours = (f"{VALIDATION}: ", place.marker, f"Signed-off-by: {place.signer}")
    headings = tuple(section.begin for section in sections)
    text, trailers = [], []
    for paragraph in re.split(r"\n\s*\n", body.strip()):
        lines = paragraph.splitlines()
        others = [line for line in lines if not line.startswith(ours)]
        if len(others) < len(lines) or all(_TRAILER.match(line) for line in lines):
            trailers += others
        elif not paragraph.startswith(headings):
            text.append(paragraph)
    return text, trailers


def _item(text: str) -> str:
    """A list item as git's own messages are wrapped, cut where it gets too long to be read."""
    lines = textwrap.wrap(
        f"- {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
    return "\n".join(lines[:MOST_LINES]) + (" ..." if len(lines) > MOST_LINES else "")


def count(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
