"""Which comments were posted for a model, so that a repeated command posts none twice."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.ground.files import sha256, write_json


@dataclass(frozen=True)
class Posted:
    """``folder`` is the model's in the workspace; the file holds issue -> hashes of what was posted there."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "posted.json"

    def has(self, issue: str, body: str) -> bool:
        return sha256(body) in self._load().get(issue, [])

    def add(self, issue: str, body: str) -> None:
        known = self._load()
        write_json(self.path, known | {issue: [*known.get(issue, []), sha256(body)]})

    def _load(self) -> dict[str, list[str]]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self.path.read_text("utf-8"))
            return found if isinstance(found, dict) else {}
        return {}
