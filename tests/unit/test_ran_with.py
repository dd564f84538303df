"""Which release the NPU side of a tree is, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from lineage_kit import RUNNERS, body, commit_at, git_at, omni_files, steps, write_tree
from sources_kit import clean_machine, server, sha, wheel  # noqa: F401

from npu_upgrade.lineage.ran_with import at_last_change, released_as
from npu_upgrade.sources.tree import open_source

GPU = "vllm_omni/worker/gpu_model_runner.py"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Three tagged releases, the last two with the same NPU side, and a GPU side that moved on."""
    clone = tmp_path / "omni"
    for number, run in enumerate([steps(3), steps(4), steps(4)], 1):
        commit_at(clone, f"2026-0{number}-01", omni_files(base=body("run", run)) | {GPU: f"a = {number}\n"})
        git_at(clone, f"2026-0{number}-01", "tag", f"v0.{number}.0")
    commit_at(clone, "2026-04-01", {GPU: "a = 4\n"})
    return clone


def test_the_newest_tag_with_the_same_npu_side(clone: Path) -> None:
    assert released_as(open_source(f"git:{clone}@main")) == f"git:{clone}@v0.3.0"
    assert released_as(open_source(f"dir:{clone}")) == f"git:{clone}@v0.3.0"


def test_runners_of_a_release_among_newer_files_ran_with_that_release(clone: Path) -> None:
    beside = Path(RUNNERS[0].path).with_name("beside.py")
    commit_at(clone, "2026-05-01", {beside.as_posix(): "a = 5\n"})
    assert released_as(open_source(f"git:{clone}@main")) == f"git:{clone}@v0.3.0"


def test_runners_of_no_release_are_taken_with_what_was_around_them_when_they_changed(clone: Path) -> None:
    path = clone / RUNNERS[0].path
    commit_at(clone, "2026-05-01", {RUNNERS[0].path: path.read_text() + "x = 1\n"})
    commit_at(clone, "2026-06-01", {GPU: "a = 6\n"})
    assert released_as(open_source(f"git:{clone}@main")) is None
    assert at_last_change(open_source(f"git:{clone}@main")).read(GPU) == "a = 4\n"
    assert at_last_change(open_source(f"dir:{clone}")).read(GPU) == "a = 4\n"


def test_an_edited_npu_side_is_no_release(clone: Path) -> None:
    path = clone / RUNNERS[0].path
    path.write_text(path.read_text() + "x = 1\n")
    assert released_as(open_source(f"dir:{clone}")) is None


def test_without_tags_the_index_is_asked_about_the_runners(tmp_path: Path, server) -> None:  # noqa: F811
    files = omni_files(base=body("run", steps(3)))
    entries = []
    for version, text in (("0.1.0", files), ("0.2.0", omni_files(base=body("run", steps(4))))):
        data = wheel(text, name="vllm_omni", version=version)
        name = f"vllm_omni-{version}-py3-none-any.whl"
        server.file(name, data)
        entries.append({"filename": name, "url": f"/files/{name}", "hashes": {"sha256": sha(data)}})
    import json

    page = json.dumps({"files": entries}).encode()
    server.page("vllm-omni", page, "application/vnd.pypi.simple.v1+json")
    folder = write_tree(tmp_path / "plain", files | {GPU: "a = 9\n"})
    assert released_as(open_source(f"dir:{folder}")) == "pypi:vllm-omni==0.1.0"
    (folder / RUNNERS[1].path).write_text("x = 1\n")
    assert released_as(open_source(f"dir:{folder}")) is None
