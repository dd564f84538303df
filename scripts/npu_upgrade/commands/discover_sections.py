"""The parts of ``discover``'s result, as JSON-able data."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from npu_upgrade.commands.discover_targets import open_or_why, shown, spec_of
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.sources import changes
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.pairing import resolve
from npu_upgrade.sources.pins import Pin, kind_of, pins_of_omni
from npu_upgrade.sources.releases import Answer, Published
from npu_upgrade.sources.spec import parse_spec
from npu_upgrade.sources.tree import SourceTree

NOT_DECLARED = "no Dockerfile, document or requirement names a vllm-ascend (a wheel carries none of them)"
GPU_WORKERS = "vllm_omni/worker"


def releases_section(answer: Answer, limit: int, pre: bool) -> dict[str, Any]:
    """One project's answer: who gave it, who did not and why, and the newest ``limit`` releases."""
    stable, newest_pre, last = answer.newest(pre=False), answer.newest(pre=True), answer.last_uploaded()
    return {
        "source": answer.source,
        "where": answer.where,
        "passed_over": answer.passed_over,
        "newest_stable": _release(stable),
        "newest_prerelease": _release(newest_pre) if pre else None,
        "last_uploaded": _release(last),
        "known": len(answer.releases),
        "releases": [_release(r) for r in shown(answer, pre)[:limit]],
        "notes": answer.notes,
    }


def _release(release: Published | None) -> dict[str, Any] | None:
    if release is None:
        return None
    return asdict(release) | {"date": release.date.isoformat() if release.date else None}


def omni_section(
    spec: str | None,
    tree: SourceTree | None,
    why: str | None,
    ascend: Answer,
    clones: dict[str, Path],
    infer: bool,
) -> dict[str, Any]:
    """What a vllm-omni declares and, when it was asked for by name, what its runners really track."""
    found: dict[str, Any] = {"spec": spec_of(tree, spec), "why": why}
    if tree is None:
        return found
    clone = Repo(clones["vllm-ascend"]) if "vllm-ascend" in clones else None
    declared = resolve(pins_of_omni(tree), clone)
    found["identity"] = tree.identity()
    found["declared"] = [asdict(pin) for pin in declared]
    found["declared_why"] = None if declared else NOT_DECLARED
    found["unpublished"] = _unpublished(declared, ascend)
    found["tracked"] = {"why": "not inferred: give --omni"}
    if infer:
        found["tracked"] = _tracked(tree, clones.get("vllm-ascend"))
    return found


def _unpublished(declared: list[Pin], ascend: Answer) -> list[str]:
    """Declared versions nobody has published: an upgrade cannot fetch them."""
    known = {r.version for r in ascend.releases}
    wanted = {pin.exact for pin in declared if pin.kind == "version"}
    return sorted(v for v in wanted - known if v) if known else []


def _tracked(tree: SourceTree, clone: Path | None) -> dict[str, Any]:
    try:
        from npu_upgrade.lineage.inference import infer_base
    except ImportError:
        return {"why": "not inferred: this installation has no lineage module"}
    say("finding the vllm-ascend that the runners were copied from")
    try:
        base = infer_base(tree, f"git:{clone}@HEAD" if clone else "pypi:vllm-ascend")
    except UpgradeError as error:
        return {"why": f"not inferred: {error.what}"}
    fields = ("label", "spec", "score", "runner_up", "confidence", "date")
    return {name: _plain(getattr(base, name)) for name in fields}


def _plain(value: Any) -> Any:
    """A value as JSON takes it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


def gpu_section(omni: SourceTree | None, answer: Answer) -> dict[str, Any]:
    """What moved below the GPU workers since the release before this vllm-omni."""
    if omni is None:
        return {"why": "vllm-omni was not read"}
    spec = parse_spec(omni.spec)
    clone = Repo(spec.path) if spec.kind == "git" and spec.path else None
    tag = changes.previous_tag(clone, omni.sha) if clone and omni.sha else None
    version = changes.previous_release(omni.version, omni.date, answer.releases)
    if tag is None and version is None:
        return {"why": "no earlier release is known"}
    since = f"git:{spec.path}@{tag}" if tag else f"pypi:vllm-omni=={version}"
    previous, why = open_or_why(since)
    if previous is None:
        return {"since": since, "why": why}
    found = changes.changes_under(GPU_WORKERS, previous, omni)
    commits = clone.oneline_log(tag, omni.sha, GPU_WORKERS) if clone and tag and omni.sha else None
    return {"since": since, "files": [asdict(change) for change in found], "commits": commits}


def notes(data: dict[str, Any], pins: list[Pin]) -> list[str]:
    """What does not fit together."""
    pair, omni = data["pair"], data["omni"]
    notes = [
        f"{pin['file']}:{pin['line']} says {pin['name']}={pin['value']}, against vllm {pair['vllm']}"
        for pin in pair["conflicts"]
    ]
    identity = omni.get("identity") or {}
    if (version := identity.get("version")) and pair["vllm"] and kind_of(pair["vllm"]) == "version":
        own, paired = Version(version).release[:2], Version(pair["vllm"]).release[:2]
        if own != paired:
            follows = f"vllm-omni {version} follows vllm {own[0]}.{own[1]} by number"
            notes.append(f"{follows}; the target belongs to vllm {pair['vllm']}")
    for missing in omni.get("unpublished", []):
        notes.append(f"vllm-omni declares vllm-ascend {missing}, which is not among the published releases")
    return notes + _environment_notes(data["installed"]["packages"], pair["vllm"], pins)


def _environment_notes(packages: list[dict[str, Any]], vllm: str | None, pins: list[Pin]) -> list[str]:
    """Installed versions the target does not pin."""
    wanted = {pin.name: pin.value for pin in pins if pin.role == "dependency" and pin.kind == "version"}
    if vllm and kind_of(vllm) == "version":
        wanted["vllm"] = vllm
    return [
        f"installed {package['name']} {package['version']}, the target pins {wanted[package['name']]}"
        for package in packages
        if package["name"] in wanted and not _same_version(package["version"], wanted[package["name"]])
    ]


def _same_version(one: str, other: str) -> bool:
    """Equal but for a local suffix such as "+cpu"; a version that is none equals nothing."""
    try:
        return Version(one).public == Version(other).public
    except InvalidVersion:
        return False
