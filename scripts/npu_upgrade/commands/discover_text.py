"""The text form of ``discover``: compact tables that fit 100 columns."""

from __future__ import annotations

import io
from itertools import zip_longest
from typing import Any

from rich.console import Console
from rich.table import Table

from npu_upgrade.sources.installed import PACKAGES

WIDTH = 100


def render(data: dict[str, Any]) -> str:
    """All sections of a discovery, as plain text without colours."""
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, color_system=None, highlight=False, markup=False, emoji=False)
    for section in (_releases, _pair, _omni, _installed, _gpu_changes, _notes):
        section(console, data)
    return "\n".join(line.rstrip() for line in stream.getvalue().strip().splitlines())


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _heading(console: Console, text: str) -> None:
    console.print(f"\n{text}")


def _releases(console: Console, data: dict[str, Any]) -> None:
    projects = data["releases"]
    _heading(console, "RELEASES (highest version first, date of publication; a/b/rc/dev are pre-releases)")
    table = _table("", *projects)
    table.add_row("stable", *(_release(p["newest_stable"]) for p in projects.values()))
    table.add_row("pre", *(_release(p["newest_prerelease"]) for p in projects.values()))
    for number, row in enumerate(zip_longest(*(p["releases"] for p in projects.values()))):
        table.add_row("" if number else "last", *(_release(r) if r else "" for r in row))
    table.add_row("source", *(p["source"] or "NONE" for p in projects.values()))
    console.print(table)
    for reason, silent in _reasons(projects).items():
        sources = list(dict.fromkeys(source for source, _ in silent))
        names = list(dict.fromkeys(project for _, project in silent))
        console.print(f"  passed over {', '.join(sources)} for {', '.join(names)}: {reason}")
    for project, p in projects.items():
        for note in p["notes"]:
            console.print(f"  {project}: {note}")


def _reasons(projects: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Reason -> the (source, project) pairs passed over for it."""
    reasons: dict[str, list[tuple[str, str]]] = {}
    for project, p in projects.items():
        for source, why in p["passed_over"].items():
            reasons.setdefault(why, []).append((source, project))
    return reasons


def _release(release: dict[str, Any] | None) -> str:
    if release is None:
        return "-"
    yanked = " YANKED" if release["yanked"] else ""
    return f"{release['version']} {(release['date'] or 'no date')[:10]}{yanked}"


def _pair(console: Console, data: dict[str, Any]) -> None:
    pair, ascend = data["pair"], data["ascend"]
    _heading(console, f"PAIR of {ascend['spec']}: vllm {pair['vllm']} ({pair['basis']})")
    console.print(f"  {pair['why']}")
    if pair["main"]:
        console.print(f"  verified with vllm main at {pair['main']}")
    if ascend["why"]:
        console.print(f"  not read: {ascend['why']}")
    _pins(console, pair["pins"])


def _pins(console: Console, pins: list[dict[str, Any]]) -> None:
    """One row per pinned value; files that repeat it are counted."""
    table = _table("role", "name", "value", "where")
    key = ("role", "name", "value")
    for same in _grouped(pins, key):
        first, files = same[0], len({pin["file"] for pin in same})
        where = f"{first['file']}:{first['line']}" + (f" (+{files - 1} more)" if files > 1 else "")
        table.add_row(*(first[name] for name in key[:2]), _value(first), where)
    if pins:
        console.print(table)


def _grouped(pins: list[dict[str, Any]], key: tuple[str, ...]) -> list[list[dict[str, Any]]]:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for pin in pins:
        groups.setdefault(tuple(pin[name] for name in key), []).append(pin)
    return list(groups.values())


def _value(pin: dict[str, Any]) -> str:
    if pin["kind"] == "sha":
        return pin["value"][:12]
    if pin["kind"] == "tag":
        return f"{pin['value']} (tag)"
    if pin["kind"] in ("branch", "short-sha"):
        return f"{pin['value']} ({pin['kind']}: {pin['sha'][:12] if pin['sha'] else 'unresolved'})"
    return pin["value"]


def _omni(console: Console, data: dict[str, Any]) -> None:
    omni = data["omni"]
    _heading(console, f"OMNI {omni['spec']}")
    if omni["why"]:
        console.print(f"  not read: {omni['why']}")
        return
    if omni["declared_why"]:
        console.print(f"  declares: {omni['declared_why']}")
    _pins(console, omni["declared"])
    tracked = omni["tracked"]
    if "label" not in tracked:
        console.print(f"  runners track: {tracked['why']}")
        return
    console.print(
        f"  runners track: {tracked['label']} ({str(tracked['date'])[:10]}), runner-up {tracked['runner_up']}"
    )
    console.print(f"  score {tracked['score']}, confidence {tracked['confidence']}")


def _installed(console: Console, data: dict[str, Any]) -> None:
    found = data["installed"]
    _heading(console, f"INSTALLED in {found['python']}")
    table = _table("package", "version", "from")
    for package in found["packages"]:
        origin = package["checkout"] or package["commit"] or package["folder"]
        editable = " (editable)" if package["editable"] else ""
        table.add_row(package["name"], package["version"], origin + editable)
    console.print(table if found["packages"] else f"  none of {', '.join(PACKAGES)}")
    cann = found["cann"]
    console.print("  CANN toolkit: " + (f"{cann['version']} ({cann['file']})" if cann else "not found"))


def _gpu_changes(console: Console, data: dict[str, Any]) -> None:
    found = data["gpu_changes"]
    _heading(console, f"GPU WORKERS since {found.get('since', 'the last release')}")
    if "files" not in found:
        console.print(f"  {found['why']}")
        return
    table = _table("added", "removed", "file")
    for change in found["files"]:
        mark = "" if change["status"] == "changed" else f" ({change['status']})"
        table.add_row(f"+{change['added']}", f"-{change['removed']}", change["file"] + mark)
    console.print(table if found["files"] else "  no file differs")
    for line in found["commits"] or []:
        console.print(f"  {line}", overflow="ellipsis", no_wrap=True)


def _notes(console: Console, data: dict[str, Any]) -> None:
    if data["notes"]:
        _heading(console, "NOTE")
    for note in data["notes"]:
        console.print(f"  {note}")
