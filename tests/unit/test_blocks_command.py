"""upgrade.py blocks: where the catalogue goes, what makes the reference stale, what is never written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_kit import called
from lineage_kit import git_at, write_tree
from merge_kit import OURS, World, make_world, runner_files

from npu_upgrade.commands import blocks as command
from npu_upgrade.job.job import start_job
from npu_upgrade.lineage.catalogue import skill

GPU = "vllm_omni/worker/gpu_model_runner.py"
GPU_TEXT = """from vllm.v1.worker.gpu_model_runner import GPUModelRunner


class OmniGPUModelRunner(GPUModelRunner):
    def load(self, path):
        # [Omni] remember it
        self.path = path
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    (made.omni / GPU).write_text(GPU_TEXT)
    write_tree(
        tmp_path / "vllm",
        {"vllm/__init__.py": "", "vllm/v1/worker/gpu_model_runner.py": "class GPUModelRunner:\n    pass\n"},
    )
    return made


def run(world: World, *args: str) -> tuple[int, dict[str, Any], str]:
    trees = ["--ascend", f"git:{world.ascend}@new", "--vllm", f"dir:{world.ascend.parent / 'vllm'}"]
    return called("upgrade.py", "blocks", *args, *trees)


def omni(world: World) -> list[str]:
    return ["--omni", f"dir:{world.omni}"]


def test_the_catalogue_of_a_tree(world: World, tmp_path: Path) -> None:
    code, result, _ = run(world, *omni(world), "--out", str(tmp_path / "out"))
    assert (code, result["verdict"]) == (0, "PASS")
    text = Path(result["catalogue"]).read_text()
    assert "# The runners' structure" in Path(result["structure"]).read_text()
    data = json.loads(Path(result["json"]).read_text())
    [npu] = [file for file in data["files"] if file["path"].endswith("/npu_model_runner.py")]
    methods = {m["name"]: m for m in npu["methods"]}
    assert methods["OmniNPUModelRunner.run"]["copied"] is True
    assert [b["marker"] for b in methods["OmniNPUModelRunner.run"]["blocks"]] == ["inside"]
    assert methods["OmniNPUModelRunner.talk"]["blocks"][0]["kind"] == "own"
    assert any("self.talk" in need for need in methods["OmniNPUModelRunner.run"]["blocks"][0]["needs"])
    assert "self.talk(batch)" not in text
    assert "self.said = batch" not in text


def test_purposes_are_kept_when_it_is_made_again(world: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(world, *omni(world), "--out", str(out))
    path = out / "omni-specific-blocks.md"
    lines = path.read_text().split("\n")
    place = next(n for n, line in enumerate(lines) if line.startswith("| `") and "| inside |" in line)
    lines[place] = lines[place].removesuffix("|  |") + "| Lets it talk. |"
    path.write_text("\n".join(lines))
    source = world.omni / "vllm_omni/platforms/npu/worker/npu_model_runner.py"
    source.write_text("# moved down\n" + source.read_text())
    _, result, _ = run(world, *omni(world), "--out", str(out))
    assert "| Lets it talk. |" in path.read_text()
    assert result["counts"]["npu"]["without a purpose"] == result["counts"]["npu"]["blocks"] - 1


def test_it_goes_to_the_job(world: World) -> None:
    source = {"spec": f"dir:{world.omni}", "identity": {}}
    job = start_job(world.workspace, omni=source, ascend=source)
    code, result, _ = run(world, "--workspace", str(world.workspace))
    assert code == 0
    assert Path(result["catalogue"]).parent == job.folder


def test_without_a_job_and_a_place_it_says_so(world: World) -> None:
    code, result, _ = run(world, *omni(world), "--workspace", str(world.workspace))
    assert (code, result["verdict"]) == (2, "USAGE")


def a_skill(folder: Path, clone: bool = True) -> Path:
    files = {"SKILL.md": "", "pyproject.toml": "", "scripts/upgrade.py": "", "references/x.md": ""}
    root = write_tree(folder, files)
    if clone:
        git_at(root, "2026-01-01", "init", "-q")
        git_at(root, "2026-01-01", "add", "-A")
        git_at(root, "2026-01-01", "commit", "-q", "-m", "skill")
    return root


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = a_skill(tmp_path / "checkout")
    for module in (skill, command):
        monkeypatch.setattr(module, "SKILL", root)
    return root


def test_the_reference_of_a_checkout_is_written_and_checked(world: World, checkout: Path) -> None:
    assert run(world, *omni(world), "--update-references")[0] == 0
    reference = checkout / "references" / "omni-specific-blocks.md"
    code, result, _ = run(world, "--check")
    assert (code, result["differences"]) == (0, [])
    source = world.omni / "vllm_omni/platforms/npu/worker/npu_model_runner.py"
    source.write_text(source.read_text().replace("self.talk(batch)", "self.talk(batch, loud=True)"))
    before = reference.read_text()
    code, result, _ = run(world, "--check")
    assert (code, result["verdict"]) == (1, "FAIL")
    assert {line.partition(":")[0] for line in result["differences"]} >= {"new", "gone"}
    assert "--update-references" in result["next"]
    assert reference.read_text() == before
    run(world, *omni(world), "--update-references")
    assert run(world, "--check")[0] == 0


def test_an_edited_reference_is_stale(world: World, checkout: Path) -> None:
    run(world, *omni(world), "--update-references")
    reference = checkout / "references" / "omni-specific-blocks.md"
    reference.write_text(reference.read_text().replace("## Read from", "## Made up"))
    assert run(world, "--check")[0] == 1


def test_no_reference_at_all(world: World, checkout: Path) -> None:
    code, result, _ = run(world, "--check")
    assert (code, result["verdict"]) == (2, "USAGE")


@pytest.mark.parametrize(
    ("place", "clone"), [("plain/vllm-npu-upgrade", False), (".agent/skills/vllm-npu-upgrade", True)]
)
def test_an_installed_skill_is_never_written_to(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, clone: bool
) -> None:
    root = a_skill(tmp_path / place, clone)
    for module in (skill, command):
        monkeypatch.setattr(module, "SKILL", root)
    files = sorted(path for path in root.rglob("*") if ".git" not in path.parts)
    code, result, _ = run(world, *omni(world), "--update-references")
    assert (code, result["verdict"]) == (2, "USAGE")
    assert "no source checkout" in result["error"]
    assert sorted(path for path in root.rglob("*") if ".git" not in path.parts) == files


def test_gpu_beside_npu(world: World) -> None:
    code, result, _ = run(world, *omni(world), "--diff", "gpu", "npu")
    assert code == 0
    found = {entry["method"]: entry for entry in result["methods"]}
    assert found["OmniGPUModelRunner.load"]["a"]["markers"] == {"[Omni]": 1}
    assert found["OmniNPUModelRunner.run"]["b"]["markers"] == {"Omni-new": 2}


def test_two_trees_beside_each_other(world: World, tmp_path: Path) -> None:
    unmarked = "\n".join(line for line in OURS.split("\n") if "Omni-new" not in line)
    other = write_tree(tmp_path / "other", runner_files(unmarked))
    _, result, _ = run(world, "--diff", f"dir:{world.omni}", f"dir:{other}")
    found = {entry["method"]: entry for entry in result["methods"]}["OmniNPUModelRunner.run"]
    missed = [len(found[side]["missed by a search for markers"]) for side in "ab"]
    assert (found["in both"], missed) == (1, [0, 1])


def test_a_side_and_a_tree_cannot_be_compared(world: World) -> None:
    code, result, _ = run(world, "--diff", "gpu", f"dir:{world.omni}")
    assert (code, result["verdict"]) == (2, "USAGE")
