"""Files and folders in the evidence that are nobody's or somebody else's: no gate minds, none is lost."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from evidence_kit import add_run

from npu_upgrade.evidence.store import Store, workspace_store
from npu_upgrade.gates.serving.session import scratch
from npu_upgrade.ground.errors import Blocked

NAMES = [
    ".DS_Store",
    "notes.txt",
    "notes",
    "-",
    "-12345678",
    "0",
    "12",
    "1-x",
    "2024-notes of mine",
    "²-abcdefgh",
    "x-abcdefgh",
    "-1-abcdefgh",
    "99999999999999999999-abcdefgh",
    "Ünï-\udcff",
]


def as_file(path: Path) -> None:
    path.write_text("mine")


def as_folder(path: Path) -> None:
    path.mkdir()
    (path / "file").write_text("mine")


def as_link(path: Path) -> None:
    path.symlink_to("nowhere")


def store_in(folder: Path) -> Store:
    store = workspace_store(folder)
    (store.folder / "scratch").mkdir()
    store.runs.mkdir()
    return store


@pytest.mark.parametrize("make", [as_file, as_folder, as_link])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_foreign_stays(tmp_path: Path, make: Callable[[Path], None], name: str) -> None:
    store = store_in(tmp_path)
    for place in (store.folder, store.runs, store.folder / "scratch"):
        make(place / name)
    with scratch(store) as folder:
        assert folder.is_dir()
        id = add_run(store, tmp_path / "log")
    assert not folder.exists()
    assert store.problems(store.records()[id]) == []
    assert (store.incomplete(), store.unrecorded()) == ([], [])
    for place in (store.folder, store.runs, store.folder / "scratch"):
        assert (place / name).is_symlink() if make is as_link else (place / name).exists()


def test_what_ended_gates_left_is_removed_and_what_others_use_is_not(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    ended = subprocess.Popen(["true"])
    ended.wait()
    old, used = (store.folder / "scratch" / f"{pid}-abc_1234" for pid in (ended.pid, os.getpid()))
    for path in (old, used):
        as_folder(path)
    with scratch(store):
        assert (old.exists(), used.exists()) == (False, True)


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    store = workspace_store(tmp_path)
    (store.folder / "scratch").write_text("mine")
    with pytest.raises(Blocked, match="no folder for the logs"), scratch(store):
        pass
    assert (store.folder / "scratch").read_text() == "mine"


@pytest.mark.parametrize("files", [["server.log"], "server.log", None, 3, {"server.log": None}])
def test_a_manifest_of_another_kind_is_a_problem_of_its_run(tmp_path: Path, files: object) -> None:
    store = store_in(tmp_path)
    id = add_run(store, tmp_path / "log")
    path = store.runs / id / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"files": files}))
    assert store.problems(store.records()[id])
