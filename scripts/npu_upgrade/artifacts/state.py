"""What this command wrote for a model, and where: ``artifacts.json`` of the model in the workspace."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import json_text
from npu_upgrade.ground.paths import workspace_root

SCHEMA = "npu-upgrade/artifacts/1"


@dataclass
class Written:
    """The deliverables of one model in one tree. ``files``: path in the tree -> the text as generated last,
    None for a file of the tree's own that only got an entry. ``row`` and ``title`` as they were entered;
    ``kept``: files that were to stay as people wrote them."""

    files: dict[str, str | None] = field(default_factory=dict)
    title: str | None = None
    row: str | None = None
    kept: list[str] = field(default_factory=list)


@dataclass
class State:
    """``trees``: folder of a tree -> what was written there; ``source``: what the weights were said to be."""

    path: Path
    model: str = ""
    trees: dict[str, Written] = field(default_factory=dict)
    source: dict[str, str | None] = field(default_factory=dict)

    def of(self, tree: Path) -> Written:
        return self.trees.get(str(tree.resolve()), Written())

    def text(self, tree: Path, written: Written) -> str:
        """The file with ``written`` entered."""
        trees = self.trees | {str(tree.resolve()): written}
        return json_text(
            {
                "schema": SCHEMA,
                "model": self.model,
                "source": self.source,
                "trees": {name: asdict(one) for name, one in trees.items()},
            }
        )


def model_folder(workspace: Path, name: str) -> Path:
    """Where the workspace keeps what belongs to one model; not made here."""
    return workspace.absolute() / ".npu-upgrade" / "adapt" / name


def make_model_folder(workspace: Path, name: str) -> Path:
    folder = workspace_root(workspace.absolute()) / "adapt" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def load_state(folder: Path) -> State:
    """What is recorded in a model's folder; an empty state when nothing is."""
    path = folder / "artifacts.json"
    try:
        value = json.loads(path.read_text("utf-8"))
        if value["schema"] != SCHEMA:
            raise ValueError(f"schema {value['schema']!r}")
        trees = {name: Written(**one) for name, one in value["trees"].items()}
        return State(path, value["model"], trees, dict(value["source"]))
    except FileNotFoundError:
        return State(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"cannot read {path}: {error}",
            expected=f"the file as this tool wrote it ({SCHEMA})",
            try_="move it away; generated files that are there already then need --replace or --keep",
        ) from error
