"""The merge command: what it writes, and that a refusal leaves everything as it was."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path

import pytest
from lineage_kit import RUNNERS, UPSTREAM, commit_at, git_at
from merge_kit import CONFLICTING, OLD, OURS, World, make_world, runner_files, upgrade

from npu_upgrade.commands import merge as command
from npu_upgrade.job.job import open_job
from npu_upgrade.sources.tree import SourceTree

BASE = RUNNERS[0].path


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = make_world(tmp_path)
    monkeypatch.chdir(made.workspace)
    return made


def merge(
    world: World, *more: str, omni: str | None = None, ascend: str | None = None
) -> tuple[int, dict, str]:
    return upgrade(
        "merge", "--omni", omni or f"git:{world.omni}@main", "--ascend", ascend or world.target, *more
    )


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_merged_files_and_the_plan_are_written(world: World) -> None:
    code, data, _ = merge(world, "--out", "out")
    text = (world.workspace / "out" / BASE).read_text()
    assert code == 0, data
    assert "self.talk(batch)" in text
    assert "tokens = self.count(batch, padded=True)" in text
    assert "from vllm.stats import GraphStats" in text
    assert text.count("Omni-new") == 2
    plan = json.loads((world.workspace / "out" / "plan.json").read_text())
    assert {entry["path"] for entry in plan["files"]} == {runner.path for runner in RUNNERS}
    assert plan["versions"]["ascend"]["sha"] == git_at(world.ascend, "2026-03-01", "rev-parse", "new")
    assert plan["versions"]["base"]["sha"] == git_at(world.ascend, "2026-03-01", "rev-parse", "old")
    assert [m["outcome"] for m in plan["methods"]] == ["auto"]
    assert "upgrade.py plan" in data["next"]
    assert "## Methods" in (world.workspace / "out" / "plan.md").read_text()


def test_methods_of_omni_stay_byte_for_byte(world: World) -> None:
    merge(world, "--out", "out")
    text = (world.workspace / "out" / BASE).read_text()
    assert text.endswith("    def talk(self, batch):\n        self.said = batch\n")


def test_a_conflict_names_the_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path, CONFLICTING)
    monkeypatch.chdir(world.workspace)
    code, data, _ = merge(world, "--out", "out")
    text = (world.workspace / "out" / BASE).read_text()
    assert code == 1
    assert data["ask"] == upgrade("next")[1]["ask"]  # the question is told at once
    assert data["conflicts_open"] == 1
    sha = git_at(world.omni, "2026-03-02", "rev-parse", "HEAD")
    assert f"<<<<<<< ours: vllm-omni {sha[:12]}\n        self.record(logits.cpu())\n" in text
    assert "||||||| base: vllm-ascend " in text
    assert ">>>>>>> theirs: vllm-ascend " in text


def test_the_same_inputs_give_the_same_result(world: World) -> None:
    merge(world, "--out", "out")
    first = everything(world.workspace / "out")
    merge(world, "--out", "out")
    assert everything(world.workspace / "out") == first


def test_work_in_the_output_folder_is_not_overwritten(world: World) -> None:
    merge(world, "--out", "out")
    path = world.workspace / "out" / BASE
    path.write_text(path.read_text() + "# mine\n")
    code, data, _ = merge(world, "--out", "out")
    assert (code, "edited" in data["error"]) == (2, True)
    assert path.read_text().endswith("# mine\n")
    assert merge(world, "--out", "out", "--replace")[0] == 0
    assert not path.read_text().endswith("# mine\n")


def test_a_named_base_is_used(world: World) -> None:
    sha = git_at(world.ascend, "2026-03-01", "rev-parse", "old")
    code, data, _ = merge(world, "--out", "out", "--base", f"git:{world.ascend}@{sha}")
    assert code == 0, data
    assert data["versions"]["base"]["inferred"] is False


def test_an_unknown_base_is_refused(world: World) -> None:
    code, data, _ = merge(world, "--out", "out", "--base", f"git:{world.ascend}@{'0' * 40}")
    assert (code, "base" in data["error"]) == (2, True)
    assert everything(world.workspace) == {}


def test_mark_puts_markers_around_omni_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path, "\n".join(line for line in OURS.split("\n") if "Omni-new" not in line))
    monkeypatch.chdir(world.workspace)
    merge(world, "--out", "plain")
    merge(world, "--out", "marked", "--mark")
    assert "Omni-new" not in (world.workspace / "plain" / BASE).read_text()
    marked = (world.workspace / "marked" / BASE).read_text()
    ast.parse(marked)
    lines = [line.strip() for line in marked.splitlines()]
    assert lines[lines.index("# Omni-specific") + 1] == "self.talk(batch)"
    assert lines.count("# Omni-specific") == 1


def test_apply_makes_one_uncommitted_change_on_a_new_branch(world: World) -> None:
    head = git_at(world.omni, "2026-03-02", "rev-parse", "HEAD")
    code, data, _ = merge(world, "--apply", "--branch", "up")
    assert code == 0, data
    assert git_at(world.omni, "2026-03-02", "symbolic-ref", "--short", "HEAD") == "up"
    assert git_at(world.omni, "2026-03-02", "rev-parse", "HEAD") == head
    changed = git_at(world.omni, "2026-03-02", "status", "--porcelain", "--untracked-files=all")
    assert changed == f"M {BASE}"
    assert "padded=True" in (world.omni / BASE).read_text()


# -- bad input: exit 2 or 3, one message, nothing written --


def refused(world: World, result: tuple[int, dict, str], *words: str, code: int = 2) -> None:
    found, data, _ = result
    assert found == code, data
    assert {"error", "expected", "try"} <= set(data)
    text = " ".join((data["error"], data["expected"], data["try"]))
    assert all(word in text for word in words), text
    left = {path for path in everything(world.workspace) if "lineage" not in path}
    assert left == set()


def test_not_a_vllm_omni_tree(world: World) -> None:
    refused(world, merge(world, "--out", "out", omni=f"git:{world.ascend}@new"), "not a vllm-omni tree")


def test_a_spec_that_does_not_exist(world: World) -> None:
    refused(world, merge(world, "--out", "out", omni=f"git:{world.omni}@no-such-branch"), "no-such-branch")
    refused(world, merge(world, "--out", "out", omni=f"dir:{world.workspace / 'nowhere'}"), "nowhere")
    refused(world, merge(world, "--out", "out", omni="vllm-omni 0.22"), "pypi:")


def test_no_network(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    refused(world, merge(world, "--out", "out", omni="pypi:vllm-omni==0.22.0"), "127.0.0.1:9", code=3)


def test_a_runner_file_that_does_not_parse(world: World) -> None:
    commit_at(world.omni, "2026-02-02", {BASE: "def broken(:\n"})
    refused(world, merge(world, "--out", "out"), "not Python", "line 1")


def test_a_runner_file_with_conflict_markers(world: World) -> None:
    text = (world.omni / BASE).read_text()
    commit_at(world.omni, "2026-02-02", {BASE: text + "<<<<<<< mine\n=======\n>>>>>>> theirs\n"})
    refused(world, merge(world, "--out", "out"), "conflict markers")


def test_a_shallow_clone(world: World, tmp_path: Path) -> None:
    git_at(
        tmp_path,
        "2026-03-02",
        "clone",
        "-q",
        "--depth",
        "1",
        f"file://{world.ascend}",
        str(tmp_path / "shallow"),
    )
    refused(
        world,
        merge(world, "--out", "out", ascend=f"git:{tmp_path / 'shallow'}@HEAD"),
        "shallow",
        "unshallow",
        code=3,
    )


def test_a_target_older_than_the_base(world: World) -> None:
    newer = OLD.replace("self.prepare(batch)", "self.prepare(batch, self.device)")
    commit_at(world.ascend, "2026-01-15", {UPSTREAM.path: newer})
    copied = OURS.replace("self.prepare(batch)", "self.prepare(batch, self.device)")
    commit_at(world.omni, "2026-02-03", runner_files(copied))
    refused(world, merge(world, "--out", "out", ascend=f"git:{world.ascend}@old"), "older than the base")


def test_a_target_without_the_runner_file(world: World) -> None:
    git_at(world.ascend, "2026-04-01", "mv", UPSTREAM.path, "vllm_ascend/elsewhere.py")
    commit_at(world.ascend, "2026-04-01", {})
    code, data, _ = merge(world, "--out", "out", ascend=f"git:{world.ascend}@HEAD")
    assert (code, UPSTREAM.path in data["error"]) == (2, True)
    assert {path for path in everything(world.workspace) if not path.startswith(".npu-upgrade/")} == set()
    code, data, _ = upgrade("next")
    assert (code, data["stop"]["rule"], UPSTREAM.path in data["why"]) == (4, "architecture", True)


def test_a_dirty_checkout_with_apply(world: World) -> None:
    path = world.omni / BASE
    path.write_text(path.read_text() + "# mine\n")
    code, data, _ = merge(world, "--apply")
    assert (code, "uncommitted changes" in data["error"]) == (2, True)
    assert path.read_text().endswith("# mine\n")
    assert git_at(world.omni, "2026-03-02", "symbolic-ref", "--short", "HEAD") == "main"
    assert not (world.omni / ".npu-upgrade").exists()


def test_a_branch_that_exists(world: World) -> None:
    git_at(world.omni, "2026-03-02", "branch", "up")
    code, data, _ = merge(world, "--apply", "--branch", "up")
    assert (code, "branch up already" in data["error"]) == (2, True)


def test_apply_of_a_release_needs_a_checkout(world: World) -> None:
    code, data, _ = merge(world, "--apply", omni="pypi:vllm-omni==0.22.0")
    assert (code, "--out DIR" in data["try"]) == (2, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_output_as_a_user(world: World) -> None:
    (world.workspace / "locked").mkdir(mode=0o500)
    assert merge(world, "--out", "locked/out")[0] == 2


def test_unwritable_output(world: World) -> None:
    (world.workspace / "out").write_text("a file stands where the folder should be")
    code, data, _ = merge(world, "--out", "out")
    assert (code, "cannot write" in data["error"]) == (2, True)
    assert (world.workspace / "out").read_text() == "a file stands where the folder should be"


def test_both_places_or_none_is_a_usage_error(world: World) -> None:
    assert merge(world)[0] == 2
    assert merge(world, "--out", "out", "--apply")[0] == 2


PROPERTY = """
    @property
    def size(self):
        one = self.first()
        two = self.second(one)
        three = self.third(two)
        four = self.fourth(three)
        five = self.fifth(four)
        return five

    @size.setter
    def size(self, value):
        self.kept = value
"""


def test_the_getter_of_a_property_is_merged_as_its_setter_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, OURS + PROPERTY.replace("self.kept = value", "self.kept = value + 1"))
    monkeypatch.chdir(world.workspace)
    newer = PROPERTY.replace("self.second(one)", "self.second(one, padded=True)")
    for number, text in enumerate((PROPERTY, newer), 1):
        commit_at(world.ascend, f"2026-01-0{number}", {UPSTREAM.path: OLD + text})
        git_at(world.ascend, f"2026-01-0{number}", "tag", f"size-{number}")
    assert merge(world, "--out", "out", ascend=f"git:{world.ascend}@size-2")[0] == 0
    text = (world.workspace / "out" / BASE).read_text()
    assert "two = self.second(one, padded=True)" in text
    assert "self.kept = value + 1" in text
    assert text.count("def size") == 2


# -- once more --


def answer(path: Path) -> None:
    """Decide the only conflict of a file by hand."""
    text = path.read_text()
    head, _, rest = text.partition("<<<<<<<")
    path.write_text(head + "        self.record(both)\n" + rest.partition(">>>>>>>")[2].partition("\n")[2])


def test_again_keeps_answers_and_moves_the_folder_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, CONFLICTING)
    monkeypatch.chdir(world.workspace)
    merge(world, "--out", "out")
    answer(world.workspace / "out" / BASE)
    mine = (world.workspace / "out" / BASE).read_text()
    sha = git_at(world.ascend, "2026-03-01", "rev-parse", "old")
    _, data, _ = upgrade("merge", "--again", "--base", f"git:{world.ascend}@{sha}")
    assert (data["conflicts_open"], data["moved_aside"]) == (0, str(world.workspace / "out-1"))
    assert (world.workspace / "out-1" / BASE).read_text() == mine
    assert "self.record(both)" in (world.workspace / "out" / BASE).read_text()
    assert data["versions"]["base"]["inferred"] is False


def test_again_leaves_the_old_branch_with_what_was_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, CONFLICTING)
    monkeypatch.chdir(world.omni)
    start = git_at(world.omni, "2026-03-01", "rev-parse", "HEAD")
    merge(world, "--apply")
    branch = git_at(world.omni, "2026-03-01", "branch", "--show-current")
    answer(world.omni / BASE)
    mine = (world.omni / BASE).read_text()
    (world.omni / "notes.txt").write_text("mine\n")
    _, data, _ = upgrade("merge", "--again")
    assert data["conflicts_open"] == 0
    aside = data["moved_aside"]
    assert git_at(world.omni, "2026-03-01", "show", f"{aside}:{BASE}") == mine.strip()
    assert git_at(world.omni, "2026-03-01", "rev-parse", f"{aside}~1", "HEAD").split() == [start, start]
    assert git_at(world.omni, "2026-03-01", "branch", "--show-current") == branch != aside
    assert (world.omni / "notes.txt").read_text() == "mine\n"
    assert "self.record(both)" in (world.omni / BASE).read_text()


def test_again_refuses_changes_on_another_branch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.omni)
    merge(world, "--apply")
    git_at(world.omni, "2026-03-01", "commit", "-aqm", "merged")
    git_at(world.omni, "2026-03-01", "switch", "-q", "main")
    (world.omni / BASE).write_text("mine = 1\n")
    before = git_at(world.omni, "2026-03-01", "for-each-ref")
    code, data, _ = upgrade("merge", "--again")
    assert (code, "changes that are not of" in data["error"]) == (2, True)
    assert (world.omni / BASE).read_text() == "mine = 1\n"
    assert git_at(world.omni, "2026-03-01", "for-each-ref") == before


def test_again_needs_a_job(world: World) -> None:
    assert upgrade("merge", "--again")[0] == 2
    assert upgrade("merge", "--out", "out")[0] == 2


def test_a_source_of_the_cache_is_linked_into_the_workspace(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own path is long, and is printed with each line that a search finds there."""
    merge(world, "--out", str(tmp_path / "out"))
    cached, own = tmp_path / "cache" / "archives" / "5e1f" / "files", tmp_path / "own"
    cached.mkdir(parents=True)
    monkeypatch.setattr(command, "cache_root", lambda: tmp_path / "cache")
    job = open_job(Path.cwd())
    for _ in range(2):  # the second time it is there already
        near = Path(command._near(job, SourceTree("-", "-", "vllm-ascend", version="0.30.0", root=cached)))
        assert (near.name, near.resolve()) == ("vllm-ascend-0.30.0", cached.resolve())
    assert command._near(job, SourceTree("-", "-", "vllm-ascend", version="0.30.0", root=own)) == str(own)
