"""The evidence of served runs: one folder, one ledger line, and ``result.json`` for whoever reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from npu_upgrade.evidence.chain import OfJob, Record
from npu_upgrade.evidence.judged import judged, model_digest
from npu_upgrade.evidence.observed import NAME, Observed
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.store import DRY_RUN, Outcome, Store
from npu_upgrade.evidence.surroundings import environment as this_environment
from npu_upgrade.gates.serving.gate import Served
from npu_upgrade.ground.command import current
from npu_upgrade.ground.files import read_object
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.sources.installed import Installed, cann_toolkit

SCHEMA = "npu-upgrade/serve/1"
_JUDGED, _PINNED = ("vllm", "vllm_ascend", "vllm_omni"), ("vllm", "vllm-ascend", "vllm-omni")
_LONGEST = 20_000  # characters of one value in the exchanges that are kept word for word


def record(
    store: Store,
    gate: str,
    runs: Sequence[Served],
    installed: Installed,
    *,
    verdict: Verdict,
    summary: str,
    more: Mapping[str, Any] | None = None,
    numbered: bool = False,
    logs: Mapping[str, Path] | None = None,
    further: Sequence[Served] = (),
    job: OfJob | None = None,
) -> tuple[Record, dict[str, Any]]:
    """Write the evidence of one or several starts of a gate and return its ledger line and ``result.json``.

    ``more`` are further keys of the result (features, capacity, ladder, accuracy). ``numbered``: a single
    start has a folder ``start-1``, too, since evidence is cited before the last start is made. ``logs``:
    more files of text by their names in the folder. ``further`` are starts that explain and are not judged,
    in folders ``ladder-N``. ``job``: the upgrade whose runners were served.

    Raises :class:`Blocked` when the disk takes no more.
    """
    last = runs[-1]
    environment = last.launch.variables()
    folder = store.begin(gate, Redactor(environment, last.launch.command()))
    packages = {name: path for name in _JUDGED if (path := installed.folder(name))}
    subject, files = judged(packages | {name: Path(path) for name, path in installed.adapters.items()})
    result = describe(gate, runs, installed, verdict, summary) | dict(more or {})
    places = [f"start-{at}/" if numbered or len(runs) > 1 else "" for at in range(1, len(runs) + 1)]
    places += [f"ladder-{at}/" for at in range(1, len(further) + 1)]
    for place, served in zip(places, [*runs, *further], strict=True):
        folder.log(f"{place}server.log", served.log)
        folder.json(f"{place}exchanges.json", _short(msgspec.to_builtins(served.exchanges, enc_hook=str)))
        for when, text in served.metrics.items():
            folder.text(f"{place}metrics-{when}.txt", text)
        folder.json(f"{place}{NAME}", msgspec.to_builtins(_whole(served, installed)))
    for name, path in (logs or {}).items():
        folder.log(name, path)
    folder.command(last.launch.command(), environment)
    folder.json("judged.json", files)
    folder.json("result.json", result)
    outcome = Outcome(
        gate=gate,
        job=job,
        label=result["label"],
        verdict=verdict,
        subject=subject,
        pins={name: {"version": installed.versions[name]} for name in _PINNED if name in installed.versions},
        command=current() or last.launch.command(),
        started=runs[0].started,
        seconds=sum(one.seconds for one in runs),
        summary=summary,
        root=last.root,
        # the serving interpreter's, not this one's
        environment=this_environment() | {"python": installed.python, "packages": installed.versions},
    )
    done = store.record(outcome, folder)
    return done, result | {"run": folder.id, "folder": str(store.runs / folder.id)}


def describe(
    gate: str, runs: Sequence[Served], installed: Installed, verdict: Verdict, summary: str
) -> dict[str, Any]:
    """What a gate says of its last start, in the form of references/serving.md."""
    last = runs[-1]
    launch = last.launch
    config = read_object(Path(launch.model) / "config.json")
    return {
        "schema": SCHEMA,
        "gate": gate,
        "verdict": verdict.value,
        "summary": summary,
        # the one that claims least is that of all
        "label": min(
            (one.label for one in runs), key=lambda label: (label.startswith("NPU"), label != DRY_RUN)
        ),
        "model": launch.model,
        "model_name": launch.model_name,
        "architectures": last.resolved.get("architectures") or config.get("architectures") or [],
        "model_digest": model_digest(launch.model),
        "load_format": launch.load_format,
        "mode": last.observed.mode if last.observed else "omni" if launch.omni else "plain",
        "device": msgspec.to_builtins(last.device),
        "work_dir": str(launch.cwd),
        "port": last.port,
        "serve_arguments": list(launch.arguments),
        "environment": dict(launch.environment),
        "resolved": last.resolved,
        "observed": last.observed.summary() if last.observed else None,
        "versions": installed.versions,
        "imports": installed.imports,
        "phases": [{"name": name, "seconds": seconds} for name, seconds in last.phases],
        "ready_seconds": last.ready_seconds,
        "checks": msgspec.to_builtins(last.checks),
        "kv_cache": last.kv_cache,
        "device_memory_mib": last.memory,
        "root": last.root,
        "started": runs[0].started,
        "seconds": round(sum(one.seconds for one in runs), 1),
        "starts": len(runs),
    }


def _whole(served: Served, installed: Installed) -> Observed | None:
    """What was observed, with the versions that served and those that the releases ask for."""
    cann = cann_toolkit(served.launch.variables())
    versions = installed.versions | ({"cann": cann[0]} if cann else {})
    return served.observed and replace(served.observed, versions=versions, required=installed.required)


def _short(value: Any) -> Any:
    """Values without what is only bulk, such as a picture: its beginning, length and hash stay."""
    if isinstance(value, Mapping):
        return {key: _short(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    if isinstance(value, str) and len(value) > _LONGEST:
        digest = hashlib.sha256(value.encode()).hexdigest()
        return f"{value[:200]}... ({len(value)} characters, SHA-256 {digest})"
    return value
