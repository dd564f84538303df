"""A model is delivered as exactly one signed-off commit of what belongs to it, or not at all."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from adapt_kit import MODEL_FILE, OPS, PATCH_FILE, REGISTRY, World, deliver, make_world
from artifacts_kit import HF_ID, NAME
from deliver_support import add_hook, git, snapshot, write

from npu_upgrade.job.adaptation import Stage, adaptation, stages

PAGE = f"docs/source/tutorials/models/{NAME}.md"
DOCUMENTS = [
    "docs/hooks/nav_titles.py",
    PAGE,
    "docs/source/tutorials/models/index.md",
    "docs/source/user_guide/support_matrix/supported_models.md",
    "mkdocs.yml",
    f"tests/e2e/models/configs/{NAME}.yaml",
]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


@pytest.fixture
def proven(world: World, capsys: pytest.CaptureFixture[str]) -> World:
    """Every gate passed on an NPU, and the documents are generated."""
    world.prove()
    world.generate(capsys)
    return world


@pytest.fixture
def call(world: World, capsys: pytest.CaptureFixture[str]):
    return lambda *options: deliver(world, capsys, *options)


def test_one_signed_off_commit_of_code_and_documents(proven: World, call) -> None:
    before = proven.head()
    code, result = call()
    assert code == 0, result
    assert git(proven.repo, "rev-parse", "HEAD^").strip() == before
    assert proven.committed() == sorted([*DOCUMENTS, PATCH_FILE, OPS])
    assert git(proven.repo, "status", "--porcelain") == ""
    assert (proven.repo / OPS).read_bytes() == (proven.ascend / OPS).read_bytes()
    lines = proven.body().strip().splitlines()
    assert lines[0] == f"[Feature] Support {NAME}"
    record = json.loads(
        (proven.workspace / ".npu-upgrade/evidence/evidence.jsonl").read_text().splitlines()[1]
    )
    assert lines[-3:] == [
        f"NPU-Validation: {record['id']}",
        f"Adapted-Model: {NAME}",
        "Signed-off-by: Ada Lovelace <ada@example.com>",
    ]
    assert f"- {HF_ID} (Qwen3ForCausalLM)" in lines
    assert "- 8 files, 2 of them code" in lines
    report = Path(result["report"]).read_text("utf-8")
    for told in (
        result["commit"],
        f"| vllm-ascend | `{PATCH_FILE}` | 1 | 0 |",
        f"| vllm | `{MODEL_FILE}` | 2 | 0 |",
    ):
        assert told in report


def test_the_other_projects_change_is_a_patch_that_applies(proven: World, call, tmp_path: Path) -> None:
    code, result = call()
    assert code == 0, result
    patch = Path(result["patches"][0])
    assert patch == proven.repo.parent / f"{NAME}-vllm.patch"
    assert patch.name in proven.body()
    fresh = tmp_path / "fresh"
    git(tmp_path, "clone", "-q", str(proven.vllm), str(fresh))
    git(fresh, "apply", str(patch))
    for path in (MODEL_FILE, REGISTRY):
        assert (fresh / path).read_bytes() == (proven.vllm / path).read_bytes()


def test_a_dry_run_shows_all_and_changes_nothing(proven: World, call) -> None:
    places = (proven.repo, proven.vllm, proven.ascend)
    before = [snapshot(place) for place in places], objects(places), sorted(proven.folder.iterdir())
    code, result = call("--dry-run")
    assert code == 0, result
    assert result["files"] == sorted([*DOCUMENTS, PATCH_FILE, OPS])
    assert f"Adapted-Model: {NAME}" in result["message"]
    assert ([snapshot(place) for place in places], objects(places), sorted(proven.folder.iterdir())) == before


def test_a_second_delivery_finds_its_commit_and_a_change_amends_it(proven: World, call) -> None:
    first = call()[1]["commit"]
    again = call()[1]
    assert (again["commit"], again["new"]) == (first, False)
    base = git(proven.repo, "rev-parse", "HEAD^")
    write(proven.repo, PAGE, (proven.repo / PAGE).read_text() + "\nSeen by Ada.\n")
    code, result = call()
    assert code == 0, result
    assert result["commit"] != first
    assert git(proven.repo, "rev-parse", "HEAD^") == base
    assert "Seen by Ada." in git(proven.repo, "show", f"HEAD:{PAGE}")


def test_a_file_that_left_the_change_leaves_the_commit(proven: World, call, capsys) -> None:
    assert call()[0] == 0
    (proven.ascend / PATCH_FILE).unlink()
    proven.prove()
    proven.generate(capsys)
    code, result = call()
    assert code == 0, result
    assert PATCH_FILE not in proven.committed()
    assert not (proven.repo / PATCH_FILE).exists()


def test_the_change_is_merged_where_the_delivery_went_on(proven: World, call) -> None:
    text = (proven.repo / OPS).read_text()
    write(proven.repo, OPS, text.replace("line_5 = 5\n", "line_5 = 'news'\n"))
    git(proven.repo, "commit", "-q", "-am", "[Misc] News")
    code, result = call()
    assert code == 0, result
    merged = git(proven.repo, "show", f"HEAD:{OPS}")
    assert "line_3 = 'three'" in merged
    assert "line_5 = 'news'" in merged
    assert "backported onto" in proven.body()


def test_a_change_that_contradicts_the_delivery_is_refused(proven: World, call) -> None:
    write(proven.repo, OPS, (proven.repo / OPS).read_text().replace("line_3 = 3\n", "line_3 = 'other'\n"))
    git(proven.repo, "commit", "-q", "-am", "[Misc] Other")
    before = snapshot(proven.repo)
    code, result = call()
    assert code == 2
    assert "does not fit" in result["error"]
    assert snapshot(proven.repo) == before


def test_the_root_may_be_the_repository_itself(world: World, capsys) -> None:
    git(world.ascend, "switch", "-q", "-c", "adapt-tiny")
    world = World(world.folder, world.ascend, world.vllm, world.ascend, world.workspace)
    world.prove()
    world.generate(capsys)
    code, result = deliver(world, capsys)
    assert code == 0, result
    assert world.committed() == sorted([*DOCUMENTS, PATCH_FILE, OPS])
    again = deliver(world, capsys)[1]
    assert (again["commit"], again["new"]) == (result["commit"], False)


def test_what_a_build_of_the_plugin_left_stays_out(world: World, call, capsys) -> None:
    """Also where the repository ignores none of it; a folder of that name elsewhere is somebody's work."""
    plugin = "plugins/tide"
    sources = {f"{plugin}/pyproject.toml", f"{plugin}/tide/__init__.py", f"{plugin}/tide/build/graph.py"}
    left = (
        "build/lib/tide/__init__.py",
        "dist/tide-1.tar",
        "tide.egg-info/PKG-INFO",
        "tide/__pycache__/a.pyc",
    )
    for name in (*sources, *(f"{plugin}/{one}" for one in left)):
        write(world.repo, name, "")
    plan = world.workspace / ".npu-upgrade/adapt" / NAME / "plan.json"
    plan.parent.mkdir(parents=True)
    tree = {"root": str(world.repo / plugin), "package": "tide"}
    plan.write_text(json.dumps({"steps": [], "trees": {"plugin": tree}}))
    world.prove()
    world.generate(capsys)
    code, result = call()
    assert code == 0, result
    assert {one for one in world.committed() if one.startswith(plugin)} == sources
    assert all((world.repo / plugin / one).is_file() for one in left)


def test_documents_written_in_the_root_come_along(world: World, capsys) -> None:
    world.prove()
    world.generate(capsys, world.ascend)
    code, result = deliver(world, capsys)
    assert code == 0, result
    assert world.committed() == sorted([*DOCUMENTS, PATCH_FILE, OPS])


def test_report_and_runbook_are_in_the_commit_where_they_were_asked_for(world: World, capsys) -> None:
    world.prove()
    world.generate(capsys, more=("--reports",))
    code, result = deliver(world, capsys)
    assert (code, f"{NAME}.report.zh.md" in result["error"]) == (2, True), "it lists no changed file"
    again = shlex.split(result["try"])
    world.generate(capsys, more=again[again.index("--tree") + 2 :])  # reports are asked for once
    code, result = deliver(world, capsys)
    assert code == 0, result
    places = {name: f"docs/adaptations/{NAME}.{name}.zh.md" for name in ("report", "runbook")}
    assert world.committed() == sorted([*DOCUMENTS, *places.values(), PATCH_FILE, OPS])
    texts = {name: (world.repo / place).read_text("utf-8") for name, place in places.items()}
    assert "vllm serve" in texts["runbook"]
    assert f"`{PATCH_FILE}`" in texts["report"]


def test_binary_files_and_line_ends_survive(world: World, capsys) -> None:
    (world.ascend / "vllm_ascend/table.bin").write_bytes(bytes(range(256)) * 4)
    (world.ascend / "vllm_ascend/dos.txt").write_bytes(b"one\r\ntwo\r\n")
    (world.ascend / "vllm_ascend/run.sh").write_text("#!/bin/sh\n")
    (world.ascend / "vllm_ascend/run.sh").chmod(0o755)
    world.prove()
    world.generate(capsys)
    assert deliver(world, capsys)[0] == 0
    for name in ("table.bin", "dos.txt", "run.sh"):
        here, there = world.repo / "vllm_ascend" / name, world.ascend / "vllm_ascend" / name
        assert here.read_bytes() == there.read_bytes()
        assert here.stat().st_mode & 0o111 == there.stat().st_mode & 0o111


def test_a_hook_that_refuses_leaves_everything_as_it_was(proven: World, call) -> None:
    add_hook(proven.repo, "pre-commit", "echo no; exit 1")
    before = snapshot(proven.repo)
    code, result = call()
    assert code == 1
    assert "hook" in result["summary"]
    assert snapshot(proven.repo) == before
    assert not (proven.repo.parent / f"{NAME}-vllm.patch").exists()


def test_real_weights_on_a_cpu_need_an_agreement_and_the_commit_says_so(world: World, capsys) -> None:
    world.prove("CPU real")
    world.generate(capsys)
    code, result = deliver(world, capsys)
    assert code == 2
    assert "on a CPU only" in result["error"]
    code, result = deliver(world, capsys, "--pending-npu", "--open", "throughput")
    assert code == 0, result
    assert "NPU-Validation: pending" in world.body()
    assert "- throughput: measured on the CPU: 1024+128 tokens, 16 at once: 812.5" in world.body()
    assert "pending" in result["summary"]


def test_signing_as_git_is_configured(proven: World, call, tmp_path: Path) -> None:
    if not shutil.which("ssh-keygen"):
        pytest.skip("no ssh-keygen")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    for name, value in (("gpg.format", "ssh"), ("user.signingkey", str(key)), ("commit.gpgsign", "true")):
        git(proven.repo, "config", name, value)
    assert call()[0] == 0
    assert "\ngpgsig" in git(proven.repo, "cat-file", "commit", "HEAD")
    assert call("--no-sign")[1]["new"] is False


def objects(places) -> list[Path]:
    return sorted(path for place in places for path in (place / ".git/objects").rglob("*"))


def test_the_guide_knows_what_was_written_and_delivered(proven: World, call) -> None:
    def known() -> dict[str, Stage]:
        return {stage.name: stage for stage in stages(adaptation(proven.workspace, NAME))}

    found = known()
    assert (found["artifacts"].state, found["deliver"].state) == ("done", "todo")
    assert found["deliver"].command.argv[:5] == ["adapt.py", "deliver", NAME, "--repo", str(proven.repo)]
    commit = call()[1]["commit"]
    delivered = known()["deliver"]
    assert (delivered.state, delivered.said) == (
        "done",
        f"commit {commit[:12]} on adapt-tiny",
    )
