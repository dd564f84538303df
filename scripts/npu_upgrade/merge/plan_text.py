"""The plan of an upgrade for people: ``plan.md`` and the table on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MARKS = {"open": "[ ]", "done": "[x]", "waived": "[-]"}


def plan_markdown(plan: Mapping[str, Any]) -> str:
    """The whole plan as Markdown: versions, methods, what is left, decisions, imports."""
    versions = plan["versions"]
    lines = [f"# NPU runner upgrade: {label(versions['omni'])} onto {label(versions['ascend'])}", ""]
    lines += [
        f"- {role}: `{versions[role]['spec']}`" for role in ("omni", "base", "ascend") if versions.get(role)
    ]
    lines += ["", f"Conflicts left: {plan['conflicts_open']}.", "", "## Methods", ""]
    lines += ["| method | outcome | base | statements | flags | conflicts |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in method_rows(plan)]
    lines += _items(plan, "To resolve before delivery", blocking=True)
    lines += _items(plan, "To look at", blocking=False)
    lines += _imports(plan)
    return "\n".join(lines) + "\n"


def method_rows(plan: Mapping[str, Any]) -> list[list[str]]:
    """One row a method: name, outcome, base, automatic statements, flags, conflicts."""
    return [
        [
            f"{m['runner']}: {m['name'].rpartition('.')[2]}",
            m["outcome"],
            m["base"],
            str(m["automatic_statements"]),
            str(len(m["flags"])),
            str(len(m["conflicts"])),
        ]
        for m in plan["methods"]
    ]


def label(identity: Mapping[str, Any]) -> str:
    """The short name of a version: project and release, or abbreviated SHA."""
    name = identity.get("version") or (identity.get("sha") or "")[:9] or "working tree"
    return f"{identity.get('project') or 'source'} {name}"


def _items(plan: Mapping[str, Any], heading: str, *, blocking: bool) -> list[str]:
    items = [item for item in plan["items"] if item["blocking"] is blocking]
    lines = ["", f"## {heading} ({sum(item['state'] == 'open' for item in items)} open)", ""]
    for item in items:
        lines.append(f"- {_MARKS[item['state']]} `{item['id']}` {item['title']}")
        if item.get("note"):
            lines.append(f"  note: {item['note']}")
        if item["detail"]:
            lines += ["", "  ````", *(f"  {line}" for line in item["detail"].split("\n")), "  ````", ""]
    return lines if items else [*lines, "Nothing."]


def _imports(plan: Mapping[str, Any]) -> list[str]:
    lines = ["", "## Imports", ""]
    for entry in plan["imports"]:
        changes = [f"added `{text}`" for text in entry["added"]]
        changes += [f"dropped `{text}`" for text in entry["dropped"]]
        changes += [f"moved `{pair['from']}` to `{pair['to']}`" for pair in entry["moved"]]
        lines += [f"### {entry['path']}", "", *([f"- {change}" for change in changes] or ["No change."]), ""]
    return lines
