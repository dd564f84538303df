"""What was written for a model, and where: ``artifacts.json`` of the model in the workspace."""

from __future__ import annotations

from pathlib import Path

import msgspec

from npu_upgrade.artifacts.naming import Source
from npu_upgrade.ground.files import json_text
from npu_upgrade.ground.kept import written
from npu_upgrade.ground.paths import workspace_root

SCHEMA = "npu-upgrade/artifacts/1"
STATE = "artifacts.json"  # in the folder of a model


class Written(msgspec.Struct):
    """The deliverables of one model in one tree. ``files``: path in the tree -> the text as generated last,
    None for a file of the tree's own that only got an entry. ``row`` and ``title`` as they were entered;
    ``kept``: files that were to stay as people wrote them."""

    files: dict[str, str | None] = {}
    title: str | None = None
    row: str | None = None
    kept: list[str] = []

    @property
    def reports(self) -> bool:
        """Whether report and runbook were written into the tree."""
        return any(path.endswith(".report.zh.md") for path in self.files)


class State(msgspec.Struct):
    """``trees``: folder of a tree -> what was written there; ``source``: where the weights are.

    ``runs``: the ids of those that were known then; ``gaps``: what the documents lacked.
    """

    schema: str = ""
    model: str = ""
    source: Source = Source()
    trees: dict[str, Written] = {}
    runs: list[str] = []
    gaps: list[str] = []

    def of(self, tree: Path) -> Written:
        return self.trees.get(str(tree.resolve()), Written())

    def text(self, tree: Path, written: Written) -> str:
        """The file with ``written`` entered."""
        trees = self.trees | {str(tree.resolve()): written}
        return json_text(msgspec.to_builtins(msgspec.structs.replace(self, schema=SCHEMA, trees=trees)))


def make_model_folder(workspace: Path, name: str) -> Path:
    folder = workspace_root(workspace.absolute()) / "adapt" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def load_state(folder: Path) -> State:
    """What is recorded in a model's folder; an empty state when nothing is."""
    again = "move it away; generated files that are there already then need --replace or --keep"
    return written(folder / STATE, State, schema=SCHEMA, try_=again) or State()
