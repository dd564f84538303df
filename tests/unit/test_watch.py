"""The watch over clones and an index that the tests make: what it mentions, keeps, and says it to whom."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_kit import called
from lineage_kit import UPSTREAM, commit_at, git_at, publish
from merge_kit import NEW, OLD, OURS, runner_files
from sources_kit import clean_machine, server, write_tree  # noqa: F401

from documented import ROOT
from npu_upgrade.audit.run import run_checks
from npu_upgrade.commands import watch_request
from npu_upgrade.gates.emulation.dry_run import Played
from npu_upgrade.gates.emulation.outcome import FAIL, PASS, Outcome
from npu_upgrade.ground.paths import WORKSPACE_DIR, cache_root
from npu_upgrade.lineage.items import Item
from npu_upgrade.report.watch import render_watch
from npu_upgrade.threeway.pieces import Flag
from npu_upgrade.watch import importing, judge
from npu_upgrade.watch.flags import _concerns
from npu_upgrade.watch.issue import News
from npu_upgrade.watch.records import Entry, Seen, State, Touch, read_state

RUNNER = "vllm_omni/platforms/npu/worker/npu_model_runner.py"
HELPERS = "vllm_ascend/worker/helpers.py"


class World:
    """A vllm-ascend with a history, a vllm-omni checkout that copied its first commit, and an empty vllm."""

    def __init__(self, folder: Path, ours: str = OURS) -> None:
        self.ascend, self.omni, self.vllm = folder / "ascend", folder / "omni", folder / "vllm-source"
        first = {
            UPSTREAM.path: OLD,
            "vllm_ascend/__init__.py": "",
            HELPERS: "def shape(batch):\n    return batch\n",
        }
        self.first = commit_at(self.ascend, "2026-01-01", first)
        files = runner_files(ours)
        files[RUNNER] = f"from vllm_ascend.worker.helpers import shape\n{files[RUNNER]}\n\nSHAPE = shape\n"
        commit_at(self.omni, "2026-02-01", files)
        vllm = {"__init__.py": "", "config.py": "class VllmConfig:\n    pass\n"}
        write_tree(self.vllm / "vllm", vllm)

    def commit(self, date: str, old: str, new: str, path: str = UPSTREAM.path) -> str:
        """Replace a text in a file of upstream's; the SHA."""
        text = (self.ascend / path).read_text()
        assert old in text
        return commit_at(self.ascend, date, {path: text.replace(old, new)})

    def watch(self, *words: str | Path) -> tuple[int, dict[str, Any], str]:
        sources = ("--omni", f"dir:{self.omni}", "--ascend", f"git:{self.ascend}")
        return called("upgrade.py", "watch", *sources, "--upstream", f"dir:{self.vllm}", *words)


@pytest.fixture(autouse=True)
def nothing_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worlds of these tests are small; a collection walks what all tests of the process hold."""
    monkeypatch.setattr(judge, "collected", lambda: None)


@pytest.fixture
def world(clean_machine, tmp_path: Path) -> World:  # noqa: F811
    return World(tmp_path)


def told(data: dict[str, Any]) -> dict[str, str]:
    """What is new: the beginning of each SHA, or the release, and its state."""
    return {entry["label"]: entry["state"] for entry in data["new"]}


def test_what_touches_a_copy_is_green_where_it_merges_and_broken_where_it_does_not(world: World) -> None:
    own = (world.omni / RUNNER).read_text().replace("self.record(logits)", "self.record(logits.cpu())")
    commit_at(world.omni, "2026-02-02", {RUNNER: own})
    clean = world.commit("2026-03-01", "tokens = self.count(batch)", "tokens = self.count(batch, True)")
    world.commit("2026-03-02", "    return batch", "    return [batch]", HELPERS)
    other = world.commit("2026-03-03", "self.path = path", "self.path = str(path)")
    broken = world.commit("2026-03-04", "self.record(logits)", "self.record(logits.numpy())")
    code, data, _ = world.watch()
    assert told(data) == {clean[:9]: "green", broken[:9]: "broken"}
    assert other[:9] not in told(data)
    assert code == 1
    assert data["new"][0]["units"][0]["merge"] == "clean"
    assert data["new"][1]["units"][0]["merge"] == "conflict"
    assert "merge" in data["next"]
    assert (world.omni / RUNNER).read_text() == own


@pytest.mark.parametrize(("passed_over", "state"), [(True, "green"), (False, "broken")])
def test_a_copy_that_the_last_upgrade_passed_over_is_no_longer_merged(
    world: World, passed_over: bool, state: str
) -> None:
    choice = "def choose(batch):\n" + "".join(f"    step_{at} = batch.step_{at}()\n" for at in range(12))
    commit_at(world.ascend, "2026-01-05", {"vllm_ascend/choice.py": choice})
    if passed_over:
        world.commit("2026-01-06", "batch.step_9()", "batch.step_nine()", "vllm_ascend/choice.py")
    world.commit("2026-01-07", "self.count(batch)", "self.count(batch, 2)")
    runner = (world.omni / RUNNER).read_text().replace("self.count(batch)", "self.count(batch, 2)")
    own = choice.replace("batch.step_3()", "batch.ours()")
    files = {RUNNER: runner, "vllm_omni/platforms/npu/choice.py": own}
    commit_at(world.omni, "2026-02-02", files)
    new = world.commit("2026-03-01", "batch.step_3()", "batch.step_three()", "vllm_ascend/choice.py")
    _, data, _ = world.watch()
    assert told(data) == {new[:9]: state}


def test_the_next_look_tells_only_what_is_new_and_keeps_what_is_open(world: World) -> None:
    own = (world.omni / RUNNER).read_text().replace("self.record(logits)", "self.record(logits.cpu())")
    commit_at(world.omni, "2026-02-02", {RUNNER: own})
    broken = world.commit("2026-03-04", "self.record(logits)", "self.record(logits.numpy())")
    world.watch()
    code, data, _ = world.watch()
    assert (code, data["new"], [one["label"] for one in data["open"]]) == (0, [], [broken[:9]])
    green = world.commit("2026-03-05", "tokens = self.count(batch)", "tokens = self.count(batch, True)")
    code, data, _ = world.watch()
    assert (code, told(data)) == (0, {green[:9]: "green"})
    world.commit("2026-03-06", "self.record(logits.numpy())", "self.record(logits)")
    _, data, _ = world.watch()
    assert data["open"] == []


def test_a_conflict_is_told_once_whatever_its_layout(world: World) -> None:
    own = (world.omni / RUNNER).read_text().replace("self.record(logits)", "self.record(logits.cpu())")
    commit_at(world.omni, "2026-02-02", {RUNNER: own})
    broken = world.commit("2026-03-04", "self.record(logits)", "self.record(logits.numpy())")
    laid_out = "self.record(\n            logits.numpy(),  # on the host\n        )"
    again = world.commit("2026-03-05", "self.record(logits.numpy())", laid_out)
    _, data, _ = world.watch()
    assert told(data) == {broken[:9]: "broken", again[:9]: "green"}


def test_a_removed_name_is_brought_home_to_the_commit_that_removed_it(world: World) -> None:
    world.commit("2026-03-01", "    return batch", "    return [batch]", HELPERS)
    gone = world.commit("2026-03-02", "def shape(batch)", "def form(batch)", HELPERS)
    world.commit("2026-03-03", "    return [batch]", "    return batch", HELPERS)
    code, data, _ = world.watch()
    assert code == 1
    assert told(data) == {gone[:9]: "broken"}
    assert "shape" in data["new"][0]["items"][0]["title"]


def test_the_steps_between_are_asked_only_for_what_is_there_at_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(judge, "run_checks", lambda *args: asked.append(args[1]) or run_checks(*args))
    world.commit("2026-03-01", "    return batch", "    return [batch]", HELPERS)
    gone = world.commit("2026-03-02", "def shape(batch)", "def form(batch)", HELPERS)
    world.commit("2026-03-03", "    return [batch]", "    return batch", HELPERS)
    log = world.omni.parent / "other.log"
    log.write_text("ImportError: cannot import name 'other' from 'somewhere'\n")
    assert world.watch("--log", log)[0] == 4
    assert [len(names) > 1 for names in asked] == [True], "nothing there names what the log is about"
    assert told(world.watch()[1]) == {gone[:9]: "broken"}
    assert asked[1:] == [["imports"]] * len(asked[1:])
    world.commit("2026-03-04", "def form(batch)", "def shape(batch)", HELPERS)
    asked.clear()
    assert not world.watch()[1]["open"]
    assert len(asked) == 1, "what was seen last is kept"


def test_a_changed_signature_of_what_is_overridden_is_flagged(world: World) -> None:
    own = (world.omni / RUNNER).read_text()
    override = "    def load(self, path, **more):\n        super().load(path, **more)\n\n    def talk"
    commit_at(world.omni, "2026-02-02", {RUNNER: own.replace("    def talk", override)})
    body = world.commit("2026-03-01", "self.path = path", "self.path = str(path)")
    changed = world.commit("2026-03-02", "def load(self, path)", "def load(self, path, device=None)")
    code, data, _ = world.watch()
    assert (code, told(data)) == (4, {body[:9]: "green", changed[:9]: "flagged"})
    assert data["new"][1]["units"][0]["how"] == "signature changed"


def test_what_upstream_asks_of_a_newer_vllm_is_not_ours_to_mend(world: World) -> None:
    config = "class VllmConfig:\n    pass\n\n\ndef pick(one):\n    return one\n"
    write_tree(world.vllm / "vllm", {"config.py": config})
    there = "from vllm.config import VllmConfig\n"
    world.commit("2026-03-01", there, f"{there}from vllm.config import NewConfig, pick\n")
    newer = world.commit("2026-03-02", "self.count(batch)", "self.count(batch, NewConfig)")
    head = "self.record(logits)"
    below = world.commit("2026-03-03", head, f"if pick(logits, 2):\n            {head}")
    _, data, _ = world.watch()
    assert told(data) == {newer[:9]: "green", below[:9]: "green"}, [one["items"] for one in data["new"]]


def test_a_removed_class_is_told_once_and_not_for_each_method_that_is_overridden(world: World) -> None:
    helper = "class Helper:\n    def load(self):\n        return 1\n\n    def save(self):\n        return 2\n"
    commit_at(world.ascend, "2026-01-02", {"vllm_ascend/helper.py": helper})
    own = (
        "from vllm_ascend.helper import Helper\n\n\nclass Own(Helper):\n    def load(self):\n        return 3"
    )
    commit_at(world.omni, "2026-02-02", {"vllm_omni/platforms/npu/own.py": own})
    world.watch()
    world.commit("2026-03-01", helper, "def helper():\n    return 1\n", "vllm_ascend/helper.py")
    _, data, _ = world.watch()
    removed = [item["title"] for item in data["new"][0]["items"] if item["kind"] == "upstream-gone"]
    assert len(removed) == 1, removed
    assert "upstream removed vllm_ascend/helper.py:Helper," in removed[0]


def test_a_removed_file_leaves_nothing_to_merge_with(world: World) -> None:
    world.watch()
    git_at(world.ascend, "2026-03-01", "mv", UPSTREAM.path, "vllm_ascend/worker/runner.py")
    moved = commit_at(world.ascend, "2026-03-01", {"vllm_ascend/more.py": "MORE = 1\n"})
    code, data, _ = world.watch()
    assert (code, told(data)) == (1, {moved[:9]: "broken"})
    assert {"gone", "upstream-gone"} & {item["kind"] for item in data["new"][0]["items"]}


def test_since_takes_a_commit_or_a_day(world: World) -> None:
    first = world.commit("2026-03-01", "self.count(batch)", "self.count(batch, True)")
    second = world.commit("2026-03-03", "self.finish(logits)", "self.finish(logits, True)")
    for point in (first, "2026-03-02"):
        _, data, _ = world.watch("--since", point)
        assert list(told(data)) == [second[:9]]
    assert world.watch("--since", "2025-01-01")[0] == 2


def test_bisect_names_the_first_commit_that_does_not_merge(world: World) -> None:
    own = (world.omni / RUNNER).read_text().replace("self.record(logits)", "self.record(logits.cpu())")
    commit_at(world.omni, "2026-02-02", {RUNNER: own})
    for number in range(4):
        old = "self.prepare(batch)" if not number else f"self.prepare(batch, {number - 1})"
        world.commit(f"2026-03-0{number + 1}", old, f"self.prepare(batch, {number})")
    broken = world.commit("2026-03-08", "self.record(logits)", "self.record(logits.numpy())")
    world.commit("2026-03-09", "self.record(logits.numpy())", "self.record(logits.item())")
    code, data, _ = world.watch("--bisect", "OmniNPUModelRunner.run")
    assert (code, data["first"]["label"]) == (1, broken[:9])
    assert not (world.omni / WORKSPACE_DIR / "watch.json").exists()
    assert world.watch("--bisect", "OmniNPUModelRunner.talk")[0] == 2
    code, refused, _ = world.watch("--bisect", "OmniNPUModelRunner.run", "--tier", "import")
    assert (code, "--since" in refused["try"]) == (2, True)


def test_releases_stand_for_commits_where_there_is_no_clone(world: World, server) -> None:  # noqa: F811
    publish(server, {"1.0": ("2026-01-01", OLD), "1.1": ("2026-03-01", OLD), "1.2": ("2026-04-01", NEW)})
    sources = ("--omni", f"dir:{world.omni}", "--upstream", f"dir:{world.vllm}")
    code, data, _ = called("upgrade.py", "watch", *sources)
    assert told(data).keys() == {"1.2"}
    assert code == (1 if told(data)["1.2"] == "broken" else 0)
    assert called("upgrade.py", "watch", *sources)[1]["new"] == []
    code, data, _ = called("upgrade.py", "watch", *sources, "--since", "nonsense")
    assert (code, "nonsense" in data["error"]) == (2, True)


def test_the_issue_text_and_the_page_hold_what_others_wrote_as_text(world: World) -> None:
    own = (world.omni / RUNNER).read_text().replace("self.record(logits)", "self.record(logits.cpu())")
    commit_at(world.omni, "2026-02-02", {RUNNER: own})
    world.commit("2026-03-04", "self.record(logits)", "self.record(logits.numpy())")
    git_at(
        world.ascend,
        "2026-03-04",
        "commit",
        "-q",
        "--amend",
        "-m",
        "See #12 @all <script>alert(1)</script> | x",
    )
    secret = "https://me:secret@host/owner/vllm-ascend.git"
    git_at(world.ascend, "2026-03-04", "remote", "add", "origin", secret)
    _, data, _ = world.watch()
    body, page = (Path(data[name]).read_text() for name in ("issue_text", "page"))
    for text in (body, page):
        assert (
            f"https://host/owner/vllm-ascend/commit/{git_at(world.ascend, '2026-03-04', 'rev-parse', 'HEAD')}"
            in text
        )
        assert "secret" not in text
        assert "1 open item from 1 change of vllm-ascend: 1 for a maintainer to write." in text
        assert (
            f"1 change since the version that was copied ({world.first[:9]}), 1 touches vllm-omni: 1 broken."
            in text
        )
        assert "broken" in text
        assert "a maintainer has to write it" in text
        assert ", new" not in text  # at the first look everything is
    assert "--omni dir:. --ascend git:CLONE@" in body
    assert str(world.ascend) not in body
    assert body.startswith("<!-- npu-upgrade watch: vllm-omni on vllm-ascend -->")
    assert "<script>" not in body
    assert "#12" not in body
    assert "@all" not in body
    assert "<script>alert" not in page
    assert 'class="broken"' in page
    assert 'class="state broken">1 open item from 1 change' in page
    assert cells(page) == {"OmniNPUModelRunner.run": "broken"}


def cells(page: str) -> dict[str, str]:
    """The units that the rows of the timeline colour, with the state that the last such row gives them."""
    return {
        unit: state for state, unit in re.findall(r'<td class="cell (?!none)(\w+)" data-unit="([^"]+)"', page)
    }


def test_the_page_and_the_issue_tell_what_is_new_and_what_was_closed_since(world: World) -> None:
    own = (world.omni / RUNNER).read_text().replace("self.record(logits)", "self.record(logits.cpu())")
    commit_at(world.omni, "2026-02-02", {RUNNER: own})
    world.commit("2026-03-04", "self.record(logits)", "self.record(logits.numpy())")
    world.commit("2026-03-05", "self.record(logits.numpy())", "self.record(logits)")
    seen = world.commit("2026-03-06", "self.count(batch)", "self.count(batch, 2)")
    _, data, _ = world.watch()
    body, page = (Path(data[name]).read_text() for name in ("issue_text", "page"))
    for text in (body, page):
        assert "Nothing is open: what vllm-ascend changed merges by itself." in text
        assert "1 broken (1 closed since)" in text
    assert ">broken, closed since</td>" in page
    world.commit("2026-03-07", "self.count(batch, 2)", "self.count(batch, 3)")
    _, data, _ = world.watch()
    body, page = (Path(data[name]).read_text() for name in ("issue_text", "page"))
    for text in (body, page):
        assert f"1 change since the look before ({seen[:9]}), 1 touches vllm-omni: 1 green." in text
    assert page.count(", new</td>") == 1
    _, data, _ = world.watch()
    assert "0 changes since the look before" in Path(data["page"]).read_text()
    assert "none touches vllm-omni" in Path(data["issue_text"]).read_text()


def a_mention(*units: str, item: str = "", blocking: bool = False) -> Entry:
    touches = tuple(Touch("a.py", unit, "copy", "b.py:run", "changed") for unit in units)
    items = (Item("flag-1", "flag", item, path="a.py", blocking=blocking),) if item else ()
    state = (State.BROKEN if blocking else State.FLAGGED) if item else State.GREEN
    return Entry("0123", "pypi:b==1", "2026-01-01", "subject", state, touches, items)


def page_of_one(entry: Entry) -> str:
    seen = Seen("0123", "pypi:b==1", "2026-01-01", "", [entry], [item.id for item in entry.items])
    return render_watch(("a", "b"), seen, News([entry], 1, "b 0"), None)


def test_a_change_colours_the_unit_that_its_item_names_and_no_other() -> None:
    page = page_of_one(a_mention("Runner.run", "Runner.run_all", item="a.py: Runner.run_all: held"))
    assert cells(page) == {"Runner.run": "green", "Runner.run_all": "flagged"}
    assert "1 open item from 1 change of b: 1 for a reviewer to look at." in page
    assert '<td class="said flagged">flagged, new</td>' in page


def test_many_units_are_named_in_the_row_of_their_change_instead_of_a_column_each() -> None:
    few, many = ([f"Runner.run_{at}" for at in range(number)] for number in (15, 16))
    assert '<table class="grid">' in page_of_one(a_mention(*few))
    page = page_of_one(a_mention(*many))
    assert '<table class="list">' in page
    assert set(cells(page)) == set(many)
    assert 'class="cell none"' not in page


def fake_gh(folder: Path, monkeypatch: pytest.MonkeyPatch, issues: list[dict[str, str]]) -> Path:
    """A gh that lists ``issues`` and notes what it is asked; the file of its notes."""
    (folder / "issues.json").write_text(json.dumps(issues))
    program, notes = folder / "bin" / "gh", folder / "notes"
    program.parent.mkdir()
    answer = f"cat {folder}/issues.json; else cat > {folder}/body; echo https://host/issues/7; fi"
    program.write_text(f'#!/bin/sh\necho "$@" >> {notes}\nif [ "$2" = list ]; then {answer}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return notes


def test_one_issue_is_opened_once_and_then_rewritten(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit("2026-03-01", "self.count(batch)", "self.count(batch, True)")
    others = [{"url": "https://host/issues/3", "body": "another issue"}]
    notes = fake_gh(tmp_path, monkeypatch, others)
    _, data, _ = world.watch("--issue", "owner/name")
    assert data["issue"] == "https://host/issues/7"
    assert "issue create --repo owner/name --title" in notes.read_text()
    body = (tmp_path / "body").read_text()
    (tmp_path / "issues.json").write_text(
        json.dumps([*others, {"url": "https://host/issues/7", "body": body}])
    )
    _, data, _ = world.watch("--issue", "owner/name")
    assert data["issue"] == "https://host/issues/7"
    assert "issue edit https://host/issues/7" in notes.read_text()
    assert notes.read_text().count("issue create") == 1


def only_git(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has git, and no gh."""
    folder, program = folder / "only-git", shutil.which("git")
    assert program
    folder.mkdir()
    (folder / "git").symlink_to(program)
    monkeypatch.setenv("PATH", str(folder))


def test_without_gh_the_text_is_left_with_how_to(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    only_git(world.omni.parent, monkeypatch)
    code, data, _ = world.watch("--issue")
    assert code == 0
    assert "gh issue create" in data["issue"]
    assert Path(data["issue_text"]).is_file()


def pull_requests(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A gh that opens pull requests; the file of its notes."""
    program, notes = folder / "bin" / "gh", folder / "notes"
    program.parent.mkdir()
    answer = "[ $2 = create ] && cat > /dev/null && echo https://host/pull/9; exit 0"
    program.write_text(f'#!/bin/sh\necho "$@" >> {notes}\n{answer}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return notes


@pytest.fixture
def published(world: World, tmp_path: Path, server, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A remote of the downstream, somebody who commits, and an index without releases."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A Person")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "person@example.com")
    remote = tmp_path / "remote.git"
    git_at(tmp_path, "2026-02-03", "init", "-q", "--bare", str(remote))
    git_at(world.omni, "2026-02-03", "remote", "add", "origin", str(remote))
    return remote


def state_of(repo: Path) -> list[str]:
    asked = (
        ("branch", "--show-current"),
        ("for-each-ref", "refs/heads"),
        ("worktree", "list"),
        ("status", "-s"),
    )
    return [git_at(repo, "2026-02-03", *words) for words in asked]


def test_a_clean_look_opens_one_pull_request_and_leaves_the_checkout(
    world: World, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = pull_requests(tmp_path, monkeypatch)
    new = world.commit("2026-03-01", "self.count(batch)", "self.count(batch, True)")
    before = (world.omni / RUNNER).read_text()
    code, data, err = world.watch("--open-pr")
    assert (code, data["pull_request"].get("address")) == (0, "https://host/pull/9"), (data, err)
    assert (world.omni / RUNNER).read_text() == before
    assert git_at(world.omni, "2026-03-02", "branch", "--show-current").strip() == "main"
    assert "self.count(batch, True)" in git_at(published, "2026-03-02", "show", f"npu-upgrade/watch:{RUNNER}")
    message = git_at(published, "2026-03-02", "log", "-1", "--format=%B", "npu-upgrade/watch")
    assert new[:9] in message
    assert "Signed-off-by: " in message
    assert len(git_at(world.omni, "2026-03-02", "log", "--format=%H", "main..npu-upgrade/watch").split()) == 1
    code, data, _ = world.watch("--open-pr")
    assert "exists already" in data["pull_request"]["why"]
    assert notes.read_text().count("pr create") == 1


def test_what_is_open_keeps_a_pull_request_from_being_made(
    world: World, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = pull_requests(tmp_path, monkeypatch)
    own = (world.omni / RUNNER).read_text().replace("self.record(logits)", "self.record(logits.cpu())")
    commit_at(world.omni, "2026-02-02", {RUNNER: own})
    world.commit("2026-03-04", "self.record(logits)", "self.record(logits.numpy())")
    before = state_of(world.omni)
    code, data, _ = world.watch("--open-pr")
    assert (code, "1 items are open" in data["pull_request"]["why"]) == (1, True)
    world.commit("2026-03-05", "self.record(logits.numpy())", "self.record(logits)")
    world.commit("2026-03-06", "self.count(batch)", "self.count(batch, True)")
    (world.omni / RUNNER).write_text(f"{own}# mine\n")
    assert "uncommitted" in world.watch("--open-pr")[1]["pull_request"]["why"]
    (world.omni / RUNNER).write_text(own)
    assert state_of(world.omni) == before
    assert not notes.exists()
    assert world.watch("--open-pr", "--omni", "pypi:vllm-omni==0.1")[0] == 2


def test_a_check_that_refuses_leaves_nothing_of_the_upgrade(
    world: World, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit("2026-03-01", "self.count(batch)", "self.count(batch, True)")
    before = state_of(world.omni)
    real = watch_request.answered
    refuse = {"summary": "1 finding is new"}
    monkeypatch.setattr(
        watch_request, "answered", lambda one: (1, refuse) if one.name == "audit" else real(one)
    )
    code, data, _ = world.watch("--open-pr")
    assert (code, data["pull_request"]) == (0, {"why": "audit: 1 finding is new"})
    assert state_of(world.omni) == before


def test_without_gh_the_branch_is_left_with_how_to(
    world: World, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_git(world.omni.parent, monkeypatch)
    world.commit("2026-03-01", "self.count(batch)", "self.count(batch, True)")
    code, data, err = world.watch("--open-pr")
    request = data["pull_request"]
    assert (code, "gh is not installed" in request["why"]) == (0, True), err
    assert "push -u origin npu-upgrade/watch" in request["by_hand"]
    assert git_at(world.omni, "2026-03-02", "rev-parse", request["branch"]).strip() == request["commit"]


def test_a_log_is_brought_home_to_the_commit_behind_it(world: World, tmp_path: Path) -> None:
    gone = world.commit("2026-03-02", "def shape(batch)", "def form(batch)", HELPERS)
    world.watch()
    log = failed(world, "import vllm_omni.platforms.npu.worker.npu_model_runner")
    assert "ImportError: cannot import name 'shape'" in log.read_text()
    code, data, _ = called("upgrade.py", "watch", "--log", log, "--workspace", world.omni)
    assert code == 1
    assert data["brought_by"]["label"] == gone[:9]
    log.write_text("ImportError: cannot import name 'other' from 'somewhere'\n")
    assert called("upgrade.py", "watch", "--log", log, "--workspace", world.omni)[0] == 4


WHOLE = """
    def prepare(self, batch):
        self.batch = batch

    def count(self, batch):
        return len(batch)

    def forward(self, batch, tokens):
        return tokens + 1

    def record(self, logits):
        self.logits = logits

    def finish(self, logits):
        return logits
"""
RUN = "from vllm_omni.platforms.npu.worker.npu_model_runner import *\nOmniNPUModelRunner().run([1])"


def failed(world: World, code: str) -> Path:
    """The log of a program that ran on the trees as they are, and failed."""
    folder = world.omni.parent
    write_tree(folder / "other", {"torch.py": "", "numpy.py": ""})
    path = os.pathsep.join(map(str, (world.omni, world.ascend, world.vllm, folder / "other")))
    done = subprocess.run(
        [sys.executable, "-B", "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode
    log = folder / "failed.log"
    log.write_text(f"INFO 03-04 03:00:00 [worker.py:1] starting\n{done.stderr}")
    return log


@pytest.mark.parametrize(
    ("changed", "error", "edit", "code"),
    [
        # Raised below what the merge makes otherwise, where the merge has other code, and only upstream.
        (
            {"len(batch)": "(len(batch), 0)", "tokens = self.count(": "tokens, pads = self.count("},
            "can only concatenate tuple",
            "+        tokens, pads = self.count(batch)",
            4,
        ),
        (
            {
                "(self, logits):\n        self.l": "(self, logits, at):\n        self.l",
                "d(logits)": "d(logits, 2)",
            },
            "missing 1 required positional argument: 'at'",
            "+        self.record(logits, 2)",
            1,
        ),
        (
            {"finish(": "end("},
            "no attribute 'finish'",
            "+        state = self.end(logits)",
            1,
        ),
        (
            {"return tokens + 1": "return tokens.shape"},
            "no attribute 'shape'",
            "+        return tokens.shape",
            4,
        ),
    ],
)
def test_an_error_is_brought_home_since_the_last_look_without_options(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, str],
    error: str,
    edit: str,
    code: int,
) -> None:
    world.commit("2026-01-03", "    def load(self", f"{WHOLE[1:]}\n    def load(self")
    world.watch()
    world.commit("2026-03-01", "self.path = path", "self.path = str(path)")
    text = (world.ascend / UPSTREAM.path).read_text()
    for old, new in changed.items():
        text = text.replace(old, new)
    brought = commit_at(world.ascend, "2026-03-02", {UPSTREAM.path: text})
    world.commit("2026-03-03", "str(path)", "repr(path)")
    before = read_state(world.omni)
    log = failed(world, RUN)
    assert error in log.read_text()
    monkeypatch.chdir(world.omni)
    ended, data, err = called("upgrade.py", "watch", "--log", log)
    assert (ended, data["brought_by"]["label"]) == (code, brought[:9]), (data, err)
    assert edit in data["edit"].split("\n")
    assert "merge" in data["next"]
    assert read_state(world.omni) == before


def test_an_import_that_the_merge_drops_by_itself_is_brought_home_with_that(world: World) -> None:
    """No mention names it, for nothing of it is left in the merged runners."""
    head = "from vllm_ascend.worker.helpers import shape\n"
    text = (world.ascend / UPSTREAM.path).read_text().replace("self.count(batch)", "self.count(shape(batch))")
    commit_at(world.ascend, "2026-01-03", {UPSTREAM.path: f"{head}{text}"})
    own = (world.omni / RUNNER).read_text().replace("self.count(batch)", "self.count(shape(batch))")
    commit_at(world.omni, "2026-02-03", {RUNNER: own.replace("\n\nSHAPE = shape\n", "\n")})
    world.commit("2026-03-01", "self.count(shape(batch))", "self.count(batch)")
    world.commit("2026-03-01", head, "")
    gone = world.commit("2026-03-02", "def shape(batch)", "def form(batch)", HELPERS)
    _, data, _ = world.watch()
    assert not any(entry["items"] for entry in data["new"])
    log = failed(world, "import vllm_omni.platforms.npu.worker.npu_model_runner")
    code, data, err = called("upgrade.py", "watch", "--log", log, "--workspace", world.omni)
    assert (code, data["brought_by"]["label"]) == (1, gone[:9]), (data, err)
    assert f"-{head}" in data["edit"]


def test_a_log_needs_the_clone_only_for_what_came_since(world: World) -> None:
    gone = world.commit("2026-03-02", "def shape(batch)", "def form(batch)", HELPERS)
    world.watch()
    log = failed(world, "import vllm_omni.platforms.npu.worker.npu_model_runner")
    world.ascend.rename(world.ascend.with_name("elsewhere"))
    code, data, err = called("upgrade.py", "watch", "--log", log, "--workspace", world.omni)
    assert (code, data["brought_by"]["label"]) == (1, gone[:9])
    assert "only what earlier looks found" in err


def test_a_damaged_state_is_refused_and_left_alone(world: World) -> None:
    state = world.omni / WORKSPACE_DIR / "watch.json"
    state.parent.mkdir()
    state.write_text('{"schema": 9, "upstreams": {}}')
    assert world.watch()[0] == 2
    assert state.read_text() == '{"schema": 9, "upstreams": {}}'
    state.unlink()
    world.watch()
    assert list(read_state(world.omni).upstreams) == [f"git:{world.ascend}"]


def test_nothing_to_watch_is_said(clean_machine) -> None:  # noqa: F811
    assert called("upgrade.py", "watch")[0] == 2
    assert called("upgrade.py", "watch", "--downstream", "dir:.")[0] == 2


def test_the_emulated_import_is_asked_where_it_is_wanted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit("2026-03-01", "return batch", "return [batch]", HELPERS)
    first = world.commit("2026-03-02", "def shape(batch):", "def shape(batch, raises=1):", HELPERS)
    last = world.commit("2026-03-03", "return [batch]", "return batch", HELPERS)
    played: list[str] = []

    def run(triple: Any, wanted: Any, out: Path, reuse: Any) -> Played:
        assert all(reuse(Outcome("import", "import", state)) for state in (PASS, FAIL))
        played.append(triple.ascend.sha)
        fails = "raises" in triple.ascend.read(HELPERS)
        why = f"it raises ({cache_root()}/emulation/packages/{triple.ascend.sha}/{HELPERS})" if fails else ""
        outcome = Outcome("import", "import", FAIL if fails else PASS, why)
        return Played(unreached=(outcome,))

    monkeypatch.setattr(importing, "run", run)
    code, data, _ = world.watch("--tier", "import")
    assert (code, told(data)) == (1, {first[:9]: "broken"})
    assert data["new"][0]["items"][0]["title"] == f"import fails: it raises ({HELPERS})"
    assert len(played) == len(set(played)) == 4
    world.watch("--tier", "import")
    assert played[4:] == [last]


def test_any_project_watches_what_it_builds_on(clean_machine, tmp_path: Path) -> None:  # noqa: F811
    upper, lower = tmp_path / "upper-clone", tmp_path / "lower-clone"
    path = "upper/engine.py"
    source = OLD.replace("NPUModelRunner", "Engine").replace("from vllm.config import VllmConfig\n", "")
    commit_at(upper, "2026-01-01", {path: source, "upper/__init__.py": ""})
    own = f"from upper.engine import Engine\n\n\nclass OwnEngine(Engine):\n{OURS}"
    commit_at(lower, "2026-02-01", {"lower/engine.py": own, "lower/__init__.py": ""})
    text = source.replace("self.count(batch)", "self.count(batch, True)")
    green = commit_at(upper, "2026-03-01", {path: text})
    words = ("watch", "--downstream", f"dir:{lower}", "--upstream", f"git:{upper}")
    code, data, _ = called("upgrade.py", *words)
    assert (code, told(data)) == (0, {green[:9]: "green"})
    assert data["new"][0]["units"][0]["upstream"] == f"{path}:Engine.run"
    assert data["audited"] is False


BLOCK = """with self.forward():
    state = self.run(batch)
    if self.pooling:
        self.pool(state)
"""


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ("out = self.make(batch)", BLOCK.replace("pool(state)", "pool(state, 2)"), False),
        ("out = self.make(batch)", BLOCK + "self.show(state)\n", False),
        ("out = self.make(batch)", BLOCK + "self.show(batch)\n", True),
        ("with self.forward():\n    state = self.make()", BLOCK.replace("(batch)", "(batch, 2)"), True),
        ("", BLOCK + "self.show(batch)\n", False),
    ],
)
def test_a_change_to_what_ours_replaced_is_told_where_ours_has_anything_of_it(
    ours: str, theirs: str, told: bool
) -> None:
    assert _concerns(Flag("replaced", "", BLOCK, ours, theirs)) is told


def test_the_action_and_its_workflow_use_only_what_they_declare() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    workflow = yaml.safe_load((ROOT / ".github/workflows/watch.yml").read_text())
    step = workflow["jobs"]["watch"]["steps"][-1]
    assert set(step["with"]) <= set(action["inputs"])
    assert workflow["jobs"]["watch"]["timeout-minutes"] <= 60
    run = next(one for one in action["runs"]["steps"] if one.get("id") == "watch")
    script = (ROOT / ".github/watch.sh").read_text()
    assert {name for name in run["env"] if f"${name}" in script or f"${{{name}" in script} == set(
        run["env"]
    ) - {"GH_TOKEN"}


class Runner:
    """Runs the steps of action.yml as a fresh machine does each night; what it keeps outlasts the machine.

    Of the actions that the steps use, those that keep files are played.
    """

    def __init__(self, folder: Path, action: Path, inputs: dict[str, str], env: dict[str, str]) -> None:
        self.temp, self.home, self.kept, self.artifact = (
            folder / name for name in ("temp", "home", "kept", "artifact")
        )
        self.action, self.env, self.nights = action, env, 0
        found = yaml.safe_load((action / "action.yml").read_text())
        self.steps = found["runs"]["steps"]
        values = {key: str(one.get("default", "")) for key, one in found["inputs"].items()} | inputs
        self.values = {f"inputs.{key}": value for key, value in values.items()} | {
            "runner.temp": str(self.temp),
            "runner.os": "Linux",
            "github.action_path": str(action),
            "github.run_attempt": "1",
            "github.token": "token",
        }

    def night(self, *cleared: Path) -> tuple[int, str, str]:
        """One run, on a machine without ``cleared``: the code, the outputs, what was said on stderr."""
        self.nights += 1
        self.values["github.run_id"] = str(self.nights)
        for place in (self.temp, self.home, self.artifact, *cleared):
            shutil.rmtree(place, ignore_errors=True)
        for place in (self.temp, self.home):
            place.mkdir(parents=True)
        output, code, said = self.temp / "output", 0, ""
        output.touch()
        for step in self.steps:
            if code and step.get("if") != "always()":
                continue
            if "run" in step:
                own = {key: self._filled(text) for key, text in step["env"].items()}
                files = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(self.temp / "summary")}
                done = subprocess.run(
                    ["bash", "-c", step["run"]],
                    env=self.env | files | {"HOME": str(self.home)} | own,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                code, said = code or done.returncode, said + done.stderr
            else:
                self._used(step["uses"].partition("@")[0], step.get("with", {}))
        return code, output.read_text(), said

    def _used(self, name: str, given: dict[str, str]) -> None:
        if name == "actions/setup-python":
            return
        paths = [Path(self._filled(text)) for text in given["path"].split("\n") if text]
        if name == "actions/upload-artifact":
            self.artifact.mkdir()
            for path in filter(Path.exists, paths):
                shutil.copy(path, self.artifact)
            return
        key = self._filled(given["key"])
        if name == "actions/cache/save":
            for number, path in enumerate(paths):
                if path.exists():
                    shutil.copytree(path, self.kept / key / str(number), symlinks=True)
            return
        assert name == "actions/cache/restore"
        old = sorted(self.kept.glob(f"{self._filled(given['restore-keys'])}*"))
        for number, path in enumerate(paths):
            if old and (old[-1] / str(number)).exists():
                shutil.copytree(old[-1] / str(number), path, symlinks=True, dirs_exist_ok=True)

    def _filled(self, text: str) -> str:
        found = re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda name: self.values[name[1]], text)
        return str(self.home / found[2:]) if found.startswith("~/") else found


def test_the_steps_of_the_action_run_from_a_clean_clone(
    world: World, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps as action.yml has them, each night on a machine that has nothing but what was kept."""
    action = tmp_path / "action"
    git_at(tmp_path, "2026-03-01", "clone", "-q", "--no-hardlinks", str(ROOT), str(action))
    for name in ("action.yml", ".github/watch.sh"):  # as they are here, committed or not
        shutil.copy(ROOT / name, action / name)
    pull_requests(tmp_path, monkeypatch)
    inputs = {
        "downstream": str(world.omni),
        "upstream": str(world.ascend),
        "open-pr": "true",
        "sign-off": "A Maintainer <maintainer@example.com>",
    }
    env = {"PYTHON": sys.executable, "PIP_INDEX_URL": f"file://{tmp_path}"}
    runner = Runner(tmp_path / "runner", action, inputs, dict(os.environ) | env)
    seen = world.omni / WORKSPACE_DIR
    world.commit("2026-03-01", "self.count(batch)", "self.count(batch, True)")
    code, output, said = runner.night()
    assert (code, output.partition("\n")[0]) == (0, "verdict=PASS"), said
    assert "no pull request: audit: " in output  # this vllm-ascend names no vllm
    assert "Looked up to" in (runner.temp / "summary").read_text()
    own = (world.omni / RUNNER).read_text().replace("self.record(logits)", "self.record(logits.cpu())")
    commit_at(world.omni, "2026-02-02", {RUNNER: own})
    broken = world.commit("2026-03-04", "self.record(logits)", "self.record(logits.numpy())")
    code, output, said = runner.night(seen)
    assert (code, output.partition("\n")[0]) == (1, "verdict=FAIL"), said
    names = {"watch.html", "watch.md", "watch.json"}
    assert {path.name for path in runner.artifact.iterdir()} == names
    assert all(broken[:9] in path.read_text() for path in runner.artifact.iterdir())
    code, output, said = runner.night(seen)  # what was told by the night that ended red is not told again
    assert (code, output.partition("\n")[0]) == (0, "verdict=PASS"), said
    assert "1 items are open" in output


def test_a_day_that_is_none_is_a_usage_error(world: World) -> None:
    code, data, _ = world.watch("--since", "2026-02-30")
    assert (code, "2026-02-30" in data["error"]) == (2, True)
