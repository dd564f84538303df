"""The evidence of a workspace, changed: damaged as found, or written anew so that every hash fits again.

What is written anew stands for what no machine here can record, such as a run on an NPU.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.signoff_bases import Place
from npu_upgrade.evidence import manifest
from npu_upgrade.evidence.chain import canonical
from npu_upgrade.ground.files import json_text, sha256

Change = Callable[[Any], object]


class Chain:
    """The lines of a ledger, and the folders of their runs; ``run``: the line that changes are about."""

    def __init__(self, place: Place, label: str = "") -> None:
        self.folder = place.workspace / ".npu-upgrade/evidence"
        self.ledger, self.head = self.folder / "evidence.jsonl", self.folder / "evidence.head"
        self.lines: list[dict[str, Any]] = [json.loads(one) for one in self.ledger.read_text().splitlines()]
        runs = [one for one in self.lines if one["data"].get("run") and label in one["label"]]
        self.run = runs[-1] if runs else self.lines[-1]

    @property
    def at(self) -> Path:
        """The folder of the run."""
        return self.folder / "runs" / self.run["data"].get("run", "none")

    def edit(self, name: str, change: Change) -> None:
        """Change what a file of the run holds."""
        value = json.loads((self.at / name).read_text("utf-8"))
        change(value)
        (self.at / name).write_text(json_text(value), "utf-8")

    def each(self, change: Change) -> None:
        """Change each process that the run showed."""
        self.edit("observed.json", lambda seen: [change(one) for one in seen["processes"]])

    def verdict(self, verdict: str, label: str = "") -> None:
        """Another verdict and label, wherever they are written."""
        more = {"verdict": verdict} | ({"label": label} if label else {})
        self.run |= more
        self.edit("result.json", lambda found: found.update(more))

    def copy(self, at: int | None = None) -> None:
        """The run once more, as a line at ``at`` (default: the newest), which the changes are then about."""
        name = f"{self.run['data']['run'][:-8]}{len(self.lines):08x}"
        shutil.copytree(self.at, self.folder / "runs" / name)
        self.run = json.loads(json.dumps(self.run))
        self.run["data"]["run"] = name
        self.lines.insert(len(self.lines) if at is None else at, self.run)

    def gate(self, gate: str, **result: Any) -> None:
        """The run once more as one of another gate, which has more to say in its result."""
        self.copy()
        self.run |= {"gate": gate, "command": ["adapt.py", gate, "MODEL"]}
        self.edit("result.json", lambda found: found.update(result | {"gate": gate}))

    def record(self, gate: str, **more: Any) -> None:
        """The newest record of the gate ``audit`` once more, as one of another gate."""
        audit = [one for one in self.lines if one["gate"] == "audit"][-1]
        self.lines.append(json.loads(json.dumps(audit)) | {"gate": gate} | more)

    def drop(self, label: str) -> None:
        """No runs of a label."""
        for line in [one for one in self.lines if label in one["label"] and one["data"].get("run")]:
            shutil.rmtree(self.folder / "runs" / line["data"]["run"])
            self.lines.remove(line)

    def on_npu(self, weights: str = "auto") -> None:
        """The run as one on an NPU with real weights."""
        self.verdict("PASS", "NPU real")
        device = {"kind": "npu", "name": "910B3"}
        real = {"device": device | {"count": 1}, "load_format": "real"}
        self.edit(
            "result.json",
            lambda found: found.update(real, resolved=found["resolved"] | {"load_format": weights}),
        )

        def one(process: dict[str, Any]) -> None:
            if process.get("device"):
                process["device"] |= device
            process["config"] = process.get("config", {}) | {"load_format": weights}

        self.each(one)
        self.edit("observed.json", lambda seen: seen.update(pythonpath=[]))  # the emulated one's own

    def save(self) -> None:
        """Every hash made anew."""
        before = None
        for line in self.lines:
            folder = self.folder / "runs" / str(line["data"].get("run"))
            if folder.is_dir():
                files = {"schema": manifest.SCHEMA, "id": folder.name, "files": manifest.listing(folder)}
                (folder / manifest.NAME).write_text(json_text(files), "utf-8")
                line["data"]["manifest"] = manifest.file_sha256(folder / manifest.NAME)
            line.pop("id", None)
            line["previous"] = before
            line["id"] = before = sha256(canonical(line))
        self.ledger.write_bytes(b"".join(canonical(line) + b"\n" for line in self.lines))
        self.head.write_text(f"{before}\n" if before else "")


def anew(change: Callable[[Chain], object], label: str = "") -> Callable[[Place], None]:
    """A change of the newest run (of a label), with every hash made to fit."""

    def play(place: Place) -> None:
        chain = Chain(place, label)
        change(chain)
        chain.save()

    return play
