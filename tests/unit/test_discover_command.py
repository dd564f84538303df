"""``discover`` as a maintainer runs it: clones at hand, a package index, or nothing at all."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import sources_kit
from discover_world import clone_with_tags, use_as_index
from sources_kit import Server, git, serving

from npu_upgrade.cli import main as cli
from npu_upgrade.commands import discover as discover_command
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.job.job import start_job
from npu_upgrade.sources.tree import SourceTree

BASE = SimpleNamespace(
    label="0.22.0rc1",
    spec="pypi:vllm-ascend==0.22.0rc1",
    score=0.97,
    runner_up="0.21.0rc1",
    confidence=0.68,
    date=datetime(2026, 8, 1, tzinfo=UTC),
)
RUNNER = "vllm_omni/worker/gpu_model_runner.py"


@pytest.fixture(autouse=True)
def nothing_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No gh, a GitHub that refuses the connection, no CANN."""
    folder = tmp_path / "bin"
    folder.mkdir()
    git = subprocess.run(["sh", "-c", "command -v git"], capture_output=True, text=True, check=True)
    (folder / "git").symlink_to(git.stdout.strip())
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "no-cann"))


@pytest.fixture(autouse=True)
def infer_base(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Stands for the search through vllm-ascend's history, which has its own tests; answers ``base``."""
    state: dict[str, object] = {"base": BASE}

    def search(tree: SourceTree, ascend: str) -> object:
        state["asked"] = (tree.spec, ascend)
        if isinstance(state["base"], Exception):
            raise state["base"]
        return state["base"]

    monkeypatch.setattr("npu_upgrade.commands.discover.infer_base", search)
    return state


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """An index that knows what the clones know."""
    with serving() as running:
        use_as_index(running, monkeypatch)
        running.index("vllm", ("0.22.0", "2026-07-01", False), ("0.23.0", "2026-08-01", False))
        running.index("vllm-omni", ("0.22.0", "2026-07-05", False))
        running.index("vllm-ascend", ("0.23.0rc1", "2026-08-02", False))
        running.index("torch-npu", ("2.9.0", "2026-01-01", False), ("2.10.0", "2026-05-01", False))
        yield running


def commit(clone: Path, files: dict[str, str], *tags: str) -> None:
    sources_kit.commit(clone, files, "port the payload", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    for tag in tags:
        git(clone, "tag", tag)


def sha(clone: Path) -> str:
    return git(clone, "rev-parse", "HEAD")


@pytest.fixture
def ascend(tmp_path: Path) -> Path:
    clone = clone_with_tags(tmp_path / "vllm-ascend", "v0.22.0rc1")
    files = {"vllm_ascend/__init__.py": "", ".github/vllm-release-tag.commit": "v0.23.0\n"}
    commit(clone, files | {"requirements.txt": "torch-npu==2.10.0\n"}, "v0.23.0rc1")
    return clone


@pytest.fixture
def omni(tmp_path: Path) -> Path:
    clone = clone_with_tags(tmp_path / "vllm-omni", "nightly")
    commit(clone, {"vllm_omni/__init__.py": "", RUNNER: "one\ntwo\n"}, "v0.22.0")
    docker = {"docker/Dockerfile.npu": "FROM quay.io/ascend/vllm-ascend:v0.28.0\n"}
    commit(clone, docker | {RUNNER: "one\n2\n3\n", "vllm_omni/worker/new.py": "x\n"})
    return clone


def discover(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict, str]:
    """The exit code, what is in the file that the answer names with the answer's own head, and the text."""
    code = cli.main("upgrade.py", "", ["discover"], ["discover", *arguments])
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert len(captured.out) < 4000
    if "whole_result" in found:
        found |= json.loads(Path(found["whole_result"]).read_text())
    cli.main("upgrade.py", "", ["discover"], ["discover", *arguments, "--format", "text"])
    return code, found, capsys.readouterr().out


def test_everything_from_clones_and_the_index(
    server: Server, ascend: Path, omni: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repos = ("--repo", f"vllm-ascend={ascend}", "--repo", f"vllm-omni={omni}")
    code, found, text = discover(
        capsys, "--omni", f"git:{omni}@HEAD", "--ascend", f"git:{ascend}@HEAD", *repos
    )
    assert (code, found["verdict"]) == (0, "PASS")
    sources = {name: entry["source"] for name, entry in found["releases"].items()}
    assert sources == {"vllm": "index", "vllm-omni": "git", "vllm-ascend": "git", "torch-npu": "index"}
    assert (found["pair"]["vllm"], found["pair"]["basis"]) == ("0.23.0", "pinned")
    specs = f"--omni git:{omni}@{sha(omni)} --ascend git:{ascend}@{sha(ascend)}"
    assert found["next"] == f"upgrade.py merge {specs} --apply"
    assert [pin["value"] for pin in found["omni"]["declared"]] == ["v0.28.0"]
    assert any("0.28.0, which is not among the published" in note for note in found["notes"])
    assert max(map(len, text[text.index("RELEASES") : text.index("\nsource ")].splitlines())) <= 100


def test_a_release_that_cannot_be_fetched_is_inferred_when_chosen_and_refused_when_given(
    server: Server, omni: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release = [{"tag_name": "v0.23.0rc2", "published_at": "2026-08-03T00:00:00Z", "draft": False}]
    only_ascend = f"case $* in *vllm-ascend*) echo '{json.dumps(release)}';; *) exit 4;; esac"
    (tmp_path / "bin/gh").write_text(f"#!/bin/sh\n{only_ascend}\n")
    (tmp_path / "bin/gh").chmod(0o755)
    code, found, _ = discover(capsys, "--omni", f"git:{omni}@HEAD")
    assert (code, found["pair"]["basis"]) == (0, "inferred")
    assert "no release 0.23.0rc2" in found["ascend"]["why"]
    assert found["next"] is None
    code, found, _ = discover(capsys, "--omni", f"git:{omni}@HEAD", "--ascend", "pypi:vllm-ascend==0.23.0rc2")
    assert (code, found["verdict"]) == (2, "USAGE")


def test_without_specs_the_newest_release_of_the_clone_is_taken(
    server: Server, ascend: Path, omni: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, _ = discover(capsys, "--repo", f"vllm-ascend={ascend}", "--repo", f"vllm-omni={omni}")
    assert code == 0
    assert found["ascend"]["spec"] == f"git:{ascend}@{sha(ascend)}"
    assert found["omni"]["identity"]["version"] == "0.22.0"
    assert any("vllm-omni 0.22.0 follows vllm 0.22" in note for note in found["notes"])


def test_the_newest_releases_that_belong_together_are_taken_and_none_that_was_withdrawn(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.index("vllm-ascend", ("0.23.0rc1", "2026-08-02", False), ("0.24.0", "2026-09-02", True))
    omni = [("0.22.0", "2026-07-05", False), ("0.23.1", "2026-08-05", False), ("0.25.0", "2026-10-05", False)]
    server.index("vllm-omni", *omni)
    _, found, _ = discover(capsys)
    assert found["ascend"]["spec"] == "pypi:vllm-ascend==0.23.0rc1"
    assert (found["pair"]["vllm"], found["omni"]["spec"]) == ("0.23.0", "pypi:vllm-omni==0.23.1")


def test_what_the_tree_ran_as_and_what_it_was_copied_from_are_told_apart(
    server: Server,
    ascend: Path,
    omni: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("npu_upgrade.commands.discover.released_as", lambda tree: "git:omni@v0.20.0")
    _, found, _ = discover(capsys, "--omni", f"git:{omni}@HEAD", "--ascend", f"git:{ascend}@HEAD")
    (note,) = (one for one in found["notes"] if "git:omni@v0.20.0" in one)
    assert "0.22.0rc1" in note


def test_what_the_runners_track_is_asked_for_a_given_omni(
    server: Server, ascend: Path, omni: Path, infer_base: dict, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = ("--omni", f"git:{omni}@HEAD", "--ascend", f"git:{ascend}@HEAD")
    _, found, text = discover(capsys, *specs)
    assert infer_base["asked"] == (f"git:{omni}@{sha(omni)}", "pypi:vllm-ascend")
    assert found["omni"]["tracked"] == vars(BASE) | {"date": "2026-08-01T00:00:00Z"}
    assert "runners track: 0.22.0rc1 (2026-08-01), runner-up 0.21.0rc1" in text
    discover(capsys, *specs, "--repo", f"vllm-ascend={ascend}")
    assert infer_base["asked"][1] == f"git:{ascend}@HEAD"
    infer_base["base"] = Blocked("no history", expected="a clone", try_="git clone")
    code, found, _ = discover(capsys, *specs)
    assert code == 0
    assert found["omni"]["tracked"] == {"why": "not inferred: no history"}


def test_another_downstream_is_sent_to_the_merge_of_its_copies(
    server: Server, ascend: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, _ = discover(capsys, "--omni", f"git:{ascend}@HEAD", "--ascend", f"git:{ascend}@HEAD")
    assert (code, found["verdict"]) == (2, "USAGE")
    assert "is vllm-ascend; pairs are for vllm-omni only" in found["error"]
    assert "merge --downstream" in found["try"]


def test_no_pre(server: Server, ascend: Path, omni: Path, capsys: pytest.CaptureFixture[str]) -> None:
    specs = ("--omni", f"git:{omni}@HEAD", "--ascend", f"git:{ascend}@HEAD")
    _, found, _ = discover(capsys, *specs, "--no-pre")
    assert [r["version"] for r in found["releases"]["vllm"]["releases"]] == ["0.23.0", "0.22.0"]
    assert found["releases"]["vllm-ascend"]["releases"] == []
    assert found["releases"]["vllm-ascend"]["newest_prerelease"] is None


def test_installed_packages_are_compared_with_the_pins(
    server: Server,
    ascend: Path,
    omni: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, version in (("torch_npu", "2.9.0"), ("vllm", "0.23.0+empty")):
        info = tmp_path / f"site/{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    _, found, _ = discover(capsys, "--omni", f"git:{omni}@HEAD", "--ascend", f"git:{ascend}@HEAD")
    installed = [note for note in found["notes"] if note.startswith("installed")]
    assert installed == ["installed torch-npu 2.9.0, the target pins 2.10.0"]


def test_a_project_nobody_answers_for_is_blocked_but_the_rest_is_reported(
    server: Server, ascend: Path, omni: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del server.answers["/simple/torch-npu/"]
    code, found, _ = discover(capsys, "--omni", f"git:{omni}@HEAD", "--ascend", f"git:{ascend}@HEAD")
    assert (code, found["verdict"]) == (3, "BLOCKED")
    assert "torch-npu" in found["summary"]
    assert found["pair"]["vllm"] == "0.23.0"


def test_a_pair_that_cannot_be_established_is_inconclusive(
    server: Server, ascend: Path, omni: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(ascend, {".github/vllm-release-tag.commit": "main\n"})
    code, found, _ = discover(capsys, "--omni", f"git:{omni}@HEAD", "--ascend", f"git:{ascend}@HEAD")
    assert (code, found["verdict"], found["pair"]["vllm"]) == (4, "INCONCLUSIVE", None)
    assert "--repo vllm=" in found["summary"]


def test_nothing_can_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    code, found, _ = discover(capsys)
    assert (code, found["verdict"]) == (3, "BLOCKED")
    assert "--repo" in found["try"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--repo", "vllm"],
        ["--repo", "numpy=."],
        ["--repo", "torch-npu=."],
        ["--repo", "vllm=/no/such"],
        ["--omni", "0.30.0"],
    ],
)
def test_bad_arguments_are_refused_before_anything_is_asked(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, _ = discover(capsys, *arguments)
    assert (code, found["verdict"]) == (2, "USAGE")


def test_what_nothing_followed_is_told_by_next_and_status(
    server: Server,
    ascend: Path,
    omni: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def told(command: str) -> tuple[int, dict]:
        capsys.readouterr()
        code = cli.main("upgrade.py", "", [command], [command])
        return code, json.loads(capsys.readouterr().out)

    specs = ("--omni", f"git:{omni}@HEAD", "--ascend", f"git:{ascend}@HEAD")
    (omni / "deep").mkdir()
    monkeypatch.chdir(omni / "deep")
    assert told("next")[0] == 2
    _, found, _ = discover(capsys, *specs)
    assert told("next")[1]["next"] == found["next"].replace("\n", " ")
    commit(ascend, {".github/vllm-release-tag.commit": "main\n"})
    discover(capsys, *specs)
    for command in ("next", "status"):
        code, answer = told(command)
        assert (code, "could not be established" in answer["summary"]) == (4, True)
        assert answer["next"].startswith("upgrade.py discover")
    assert not (omni / WORKSPACE_DIR).exists()
    source = {"spec": "pypi:x==1.0", "identity": {"version": "1.0"}}
    job = start_job(omni, omni=source, ascend=source, repo=omni)
    monkeypatch.chdir(omni)
    job.begin("merge", ["upgrade.py", "merge"])
    assert told("next")[1]["next"] == "upgrade.py status"
    discover(capsys, *specs)
    assert "could not be established" in told("next")[1]["summary"]


def test_the_checkout_one_is_in_is_what_is_upgraded(
    server: Server,
    ascend: Path,
    omni: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = f"git:{omni}@{git(omni, 'rev-parse', 'HEAD').strip()}"
    for folder in (omni, omni / "vllm_omni"):
        monkeypatch.chdir(folder)
        _, found, _ = discover(capsys, "--ascend", f"git:{ascend}@HEAD")
        assert found["omni"]["spec"] == here
        assert found["next"].endswith("--apply")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    _, found, _ = discover(capsys, "--ascend", f"git:{ascend}@HEAD")
    assert found["omni"]["spec"] != here


@pytest.mark.parametrize(
    ("vllm", "answers"),
    [
        (
            "pypi:vllm==0.26.0",
            ["take what is recommended", "take vllm 0.30.0, the target's own", "keep the pair"],
        ),
        ("pypi:vllm==0.30.0", ["take what is recommended", "keep the pair"]),
        (None, ["take what is recommended", "keep the pair"]),
    ],
)
def test_each_answer_to_a_pair_that_fails_has_its_command(vllm: str | None, answers: list[str]) -> None:
    args = argparse.Namespace(vllm=vllm)
    other = discover_command.upgrade("discover", "--ascend", "pypi:vllm-ascend==0.26.0rc1")
    found = discover_command._answers(args, "dir:/omni", "pypi:vllm-ascend==0.30.0rc2", "0.30.0", other)
    assert [name.removesuffix(" all the same") for name in found] == answers
    assert found["take what is recommended"] == other.short
    assert "next --continue --note WHO" in found["keep the pair all the same"]
