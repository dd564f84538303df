"""The message of a delivered commit: what was upgraded, on which evidence, and what is still open."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.pins import short_pin
from npu_upgrade.job.job import Job
from npu_upgrade.job.plan_file import Plan

JOB = "Upgrade-Job"
VALIDATION = "NPU-Validation"
WIDTH = 72
MOST_LINES = 3
SHOWN = 20
_TRAILER = re.compile(r"[A-Z][a-z]*(-[A-Za-z]+)+: \S")  # Reviewed-by: and its like
HEADINGS = (
    "Versions:",
    "Merged:",
    "Open items ",
    "Waived items ",
    "Evidence for ",
    "Waived findings ",
    "Left out:",
)


def validation(standing: Sequence[Record]) -> str:
    """The record that validates these files on NPU hardware with real weights, or ``pending``."""
    return next((r.id for r in standing if r.label == "NPU real" and r.verdict == "PASS"), "pending")


def compose(
    job: Job,
    plan: Plan,
    title: str,
    changed: Sequence[str],
    standing: Sequence[Record],
    *,
    kept_text: Sequence[str] = (),
    kept_trailers: Sequence[str] = (),
) -> str:
    """The whole message but for the sign-off, which git adds as the last trailer.

    ``kept_text`` and ``kept_trailers`` are what people wrote into the commit this one replaces.
    """
    parts = [title, _versions(plan), _merged(plan, changed)]
    parts += [part for part in (_items(plan, "open"), _items(plan, "waived")) if part]
    parts += [part for part in (_waived(standing), _left_out(job)) if part]
    parts += [evidence(standing), *kept_text]
    trailers = [f"{VALIDATION}: {validation(standing)}", f"{JOB}: {job.id}", *kept_trailers]
    return "\n\n".join([*parts, "\n".join(trailers)]) + "\n"


def written_by_people(
    body: str, signer: str, trailer: str = JOB, headings: tuple[str, ...] = HEADINGS
) -> tuple[list[str], list[str]]:
    """The paragraphs and the trailers of an earlier message that this tool did not write."""
    ours = (f"{VALIDATION}: ", f"{trailer}: ", f"Signed-off-by: {signer}")
    text, trailers = [], []
    for paragraph in re.split(r"\n\s*\n", body.strip()):
        lines = paragraph.splitlines()
        others = [line for line in lines if not line.startswith(ours)]
        if len(others) < len(lines) or all(_TRAILER.match(line) for line in lines):
            trailers += others
        elif not paragraph.startswith(headings):
            text.append(paragraph)
    return text, trailers


def _versions(plan: Plan) -> str:
    omni, ascend, base = (plan.versions.get(name) for name in ("omni", "ascend", "base"))
    came_from = f"{short_pin(base)} -> " if base else ""
    lines = [f"- vllm-omni {short_pin(omni or {})}", f"- vllm-ascend {came_from}{short_pin(ascend or {})}"]
    return "\n".join([HEADINGS[0], *lines])


def _merged(plan: Plan, changed: Sequence[str]) -> str:
    outcomes = [str(method["outcome"]) for method in plan.methods if method.get("outcome")]
    # a delivery with an open conflict is refused before there is a message
    counts = Counter("with conflicts resolved" if o == "conflict" else o for o in outcomes)
    how = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))
    methods = f"{count(len(plan.methods), 'method')}{f': {how}' if how else ''}"
    return "\n".join([HEADINGS[1], f"- {methods}", f"- {count(len(changed), 'file')} changed"])


def _items(plan: Plan, state: str) -> str:
    items = plan.items_in(state)
    if not items:
        return ""
    lines = [entry(f"- {item['id']}: {_subject(item)}") for item in items[:SHOWN]]
    if len(items) > SHOWN:
        lines.append(f"- and {len(items) - SHOWN} more")
    return "\n".join([f"{state.capitalize()} items ({len(items)}):", *lines])


def _waived(standing: Sequence[Record]) -> str:
    """The findings that people accepted, as the newest audit of these files recorded them."""
    audit = next((record for record in standing if record.gate == "audit"), None)
    waived = audit.data.get("waived", []) if audit else []
    lines = [entry(f"- {one['key']}: {one['reason']}") for one in waived[:SHOWN]]
    lines += [f"- and {len(waived) - SHOWN} more"] if len(waived) > SHOWN else []
    return "\n".join([f"{HEADINGS[5]}({len(waived)}):", *lines]) if waived else ""


def _left_out(job: Job) -> str:
    lines = [entry(f"- {name}: {reason}") for name, reason in sorted(job.skipped.items())]
    return "\n".join([HEADINGS[6], *lines]) if lines else ""


def _subject(item: dict[str, Any]) -> str:
    """What the item says, without what its id says already and without its file."""
    kind, said = str(item.get("kind", "item")), str(item.get("title") or item.get("summary") or "")
    said = said.removeprefix(f"{item.get('path')}: ")
    if said and item["id"].startswith(f"{kind}-"):
        return said
    return f"{kind}: {said}" if said else kind


def evidence(standing: Sequence[Record]) -> str:
    """The paragraph that names the verdicts a delivery rests on."""
    tree = standing[0].tree[:12]
    lines = [f"- {r.label}: {r.gate} {r.verdict} (record {r.id[:12]}): {r.summary}" for r in standing]
    lines = [entry(line) for line in lines]
    return "\n".join([f"{HEADINGS[4]}tree {tree}:", *lines])


def entry(text: str) -> str:
    """A list item as git's own messages are wrapped, cut where it gets too long to be read."""
    lines = textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    return "\n".join(lines[:MOST_LINES]) + (" ..." if len(lines) > MOST_LINES else "")


def count(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
