"""The plan of an upgrade: what was merged, what was decided, what is left, for agents (JSON)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import Import, names_of
from npu_upgrade.code.statements import split_statements, statements_of
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.merge.guards import GUARD, proposes_edit
from npu_upgrade.merge.runners import MergedRunners, MethodOutcome

SCHEMA = "npu-upgrade/plan/1"


def build_plan(
    merged: MergedRunners,
    versions: Mapping[str, Any],
    extra: Iterable[Item],
    earlier: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The JSON of ``plan.json``.

    ``versions`` are the identities of omni, ascend and base; ``extra`` the items found
    outside the merge; ``earlier`` the plan of an earlier run, whose answers to items stay.
    """
    items = [*_merge_items(merged), *extra]
    _keep_answers(items, earlier)
    return {
        "schema": SCHEMA,
        "versions": dict(versions),
        "files": [
            {"path": path, "sha256_ours": sha256(merged.ours[path]), "sha256_merged": sha256(text)}
            for path, text in sorted(merged.files.items())
        ],
        "runners": {r.kind: {"path": r.path, "class": r.class_name} for r in merged.runners},
        "methods": [_method(outcome) for outcome in merged.methods],
        "imports": [_imports(path, plan) for path, plan in sorted(merged.imports.items())],
        "items": [item.as_json() for item in items],
        "conflicts_open": merged.conflicts,
    }


def counts(plan: Mapping[str, Any]) -> dict[str, int]:
    """How many methods had which outcome, and how many items of which sort are open."""
    found: dict[str, int] = {}
    for method in plan["methods"]:
        found[method["outcome"]] = found.get(method["outcome"], 0) + 1
    open_items = [item for item in plan["items"] if item["state"] == "open"]
    return found | {
        "blocking items": sum(item["blocking"] for item in open_items),
        "items to look at": sum(not item["blocking"] for item in open_items),
    }


def _merge_items(merged: MergedRunners) -> list[Item]:
    found: list[Item] = []
    for outcome in merged.methods:
        found += copy_items(outcome)
    for path, plan in sorted(merged.imports.items()):
        for name in plan.unresolved:
            detail = plan.reasons.get(name, "")
            title = f"{path}: no certain import for {name}"
            found.append(Item(item_id(UNRESOLVED, path, name), UNRESOLVED, title, detail, path, True))
    return found


def copy_items(outcome: MethodOutcome) -> Iterator[Item]:
    """What the merge of one copy leaves to a person."""
    entry = outcome.entry
    where = f"{entry.path}: {entry.name}"
    if outcome.outcome == "gone":
        detail = f"It is a copy of {outcome.base}; the target has no such method. Ours was left as it is."
        title = f"{where}: upstream removed the method this is a copy of"
        yield Item(item_id("gone", where), "gone", title, detail, entry.path, True)
    for conflict in outcome.merged.conflicts if outcome.merged else []:
        texts, title = conflict.texts(), f"{where}: conflict: {conflict.reason}"
        yield Item(item_id("conflict", where, *texts), "conflict", title, _three(texts), entry.path, True)
    for flag in outcome.merged.flags if outcome.merged else []:
        texts, kind = (flag.base, flag.ours, flag.theirs), f"flag-{flag.kind}"
        title = f"{where}: {flag.reason}"
        yield Item(item_id(kind, where, *texts), kind, title, _three(texts), entry.path)


UNRESOLVED = "unresolved-name"
UNUSED = "nothing uses the name any more"
REWRITTEN = "what it is about was rewritten since"
COMPLETED = "what it lacked was added since"


def close_rewritten(plan: Mapping[str, Any], merged: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Close the flags whose statements were changed, or whose other half was added, since the merge.

    Open them where that was undone.

    ``merged`` and ``now`` are the files by path, as the merge wrote them and as they are.
    """
    items = {item["id"]: item for item in plan["items"]}
    for method in plan["methods"]:
        path, where = method["path"], f"{method['path']}: {method['name']}"
        for flag in method["flags"] if path in merged and path in now else ():
            texts = (flag["base"], flag["ours"], flag["theirs"])
            item = items.get(item_id(f"flag-{flag['kind']}", where, *texts))
            if item and (item["state"] == "open" or item.get("note") in (REWRITTEN, COMPLETED)):
                every = {s.key for text in texts[1:] for s in statements_of(text)}
                told = every & _keys(merged[path], path, method["name"])
                left = _keys(now[path], path, method["name"])
                why = REWRITTEN if left and told - left else ""
                why = why or (COMPLETED if every - told and every <= left else "")
                item |= {"state": "done" if why else "open", "note": why}


def close_unused(plan: Mapping[str, Any], now: Mapping[str, str]) -> None:
    """Close what was asked about a name that nothing but an import has any more; open it where one has."""
    asked = [item for item in plan["items"] if item["kind"] == UNRESOLVED and item["path"] in now]
    for item in (one for one in asked if one["state"] == "open" or one.get("note") == UNUSED):
        name = item["title"].rpartition(" ")[2]
        try:
            used = any(
                name in names_of(answer.text).read for answer in answers(now[item["path"]], item["path"])
            )
        except (SyntaxError, BadInput):
            used = True
        item |= {"state": "open" if used else "done", "note": "" if used else UNUSED}


def _keys(text: str, path: str, name: str) -> set[str]:
    """The statements of a method of a file, those of both answers to its conflicts; none of a broken file."""
    try:
        units = [parse_module(answer.text).units.get(name) for answer in answers(text, path)]
    except (SyntaxError, BadInput):
        return set()
    return {s.key for unit in units if unit for s in split_statements(unit.source)}


def _three(texts: tuple[str, str, str]) -> str:
    names = ("base", "ours", "theirs")
    return "\n".join(
        f"--- {name}\n{text.strip(chr(10))}" for name, text in zip(names, texts, strict=True) if text
    )


def _keep_answers(items: list[Item], earlier: Mapping[str, Any] | None) -> None:
    known = {item["id"]: item for item in (earlier or {}).get("items", [])}
    for item in items:
        before = known.get(item.id)
        proposes = item.changes or (item.kind == GUARD and proposes_edit(item.detail))
        if before and before["state"] == "done" and proposes:
            continue  # the edit is not in these files
        if before and item.kind != "conflict":
            item.state, item.note = before["state"], before.get("note", "")


def _method(outcome: MethodOutcome) -> dict[str, Any]:
    entry, merged = outcome.entry, outcome.merged
    return {
        "path": entry.path,
        "runner": entry.runner,
        "name": entry.name,
        "outcome": outcome.outcome,
        "base": outcome.base,
        "base_score": entry.score,
        "base_confidence": entry.confidence,
        "automatic_statements": merged.automatic if merged else 0,
        "flags": [asdict(flag) for flag in merged.flags] if merged else [],
        "conflicts": [
            dict(zip(("reason", "base", "ours", "theirs"), (c.reason, *c.texts()), strict=True))
            for c in (merged.conflicts if merged else [])
        ],
    }


def _imports(path: str, plan: Any) -> dict[str, Any]:
    def line(item: Import) -> str:
        return item.statement()

    return {
        "path": path,
        "added": [line(item) for item in plan.added],
        "dropped": [line(item) for item in plan.dropped],
        "moved": [{"from": line(old), "to": line(new)} for old, new in plan.moved],
        "unresolved": plan.unresolved,
        "reasons": plan.reasons,
    }


_MARKS = {"open": "[ ]", "done": "[x]", "waived": "[-]"}


def plan_markdown(plan: Mapping[str, Any]) -> str:
    """The whole plan as Markdown: versions, methods, what is left, decisions, imports."""
    versions = plan["versions"]
    lines = [f"# Upgrade: {label(versions['omni'])} onto {label(versions['ascend'])}", ""]
    lines += [
        f"- {role}: `{versions[role]['spec']}`" for role in ("omni", "base", "ascend") if versions.get(role)
    ]
    lines += ["", f"Conflicts left: {plan['conflicts_open']}.", "", "## Methods", ""]
    lines += ["| method | outcome | base | statements | flags | conflicts |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in method_rows(plan)]
    lines += _items(plan, "To resolve before delivery", blocking=True)
    lines += _items(plan, "To look at", blocking=False)
    lines += _import_lines(plan)
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


def _import_lines(plan: Mapping[str, Any]) -> list[str]:
    lines = ["", "## Imports", ""]
    for entry in plan["imports"]:
        changes = [f"added `{text}`" for text in entry["added"]]
        changes += [f"dropped `{text}`" for text in entry["dropped"]]
        changes += [f"moved `{pair['from']}` to `{pair['to']}`" for pair in entry["moved"]]
        lines += [f"### {entry['path']}", "", *([f"- {change}" for change in changes] or ["No change."]), ""]
    return lines
