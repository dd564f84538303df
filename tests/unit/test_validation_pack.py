"""A job travels as one file to a machine without a network, and comes back as evidence of that job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import serving_kit as kit
from deliver_support import NEW, OTHER, RUNNER, WORKER, Upgrade, git, make_upgrade, write

from npu_upgrade.cli.main import main
from npu_upgrade.evidence.store import workspace_store

# a namespace with no network but the machine's own
ALONE = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def no_network() -> list[str]:
    works = shutil.which("unshare") and subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0
    return ALONE if works else []


def packed(upgrade: Upgrade, *options: str) -> Path:
    target = upgrade.workspace / "validate.pyz"
    words = ["validate", "--workspace", str(upgrade.workspace), "--pack", str(target), *options]
    assert main("upgrade.py", "", ["validate"], words) == 0
    return target


def away(pack: Path, python: Path, into: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a pack as on a machine of its own: another home, no network, no Python of ours on PATH."""
    home = into.with_name("home")
    home.mkdir(exist_ok=True)
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PIP_NO_INDEX": "1"}
    argv = [*no_network(), sys.executable, str(pack), "--into", str(into), "--python", str(python), *options]
    return subprocess.run(argv, capture_output=True, text=True, env=clean, cwd=home)


def imported(upgrade: Upgrade, pack: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    capsys.readouterr()
    words = ["evidence", "import", str(pack), "--format", "json", "--workspace", str(upgrade.workspace)]
    return main("upgrade.py", "", ["evidence"], words), json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def upgrade(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgrade]:
    """One upgrade for all: who changes it puts it back."""
    with pytest.MonkeyPatch.context() as patch:
        made = make_upgrade(tmp_path_factory.mktemp("here"), patch)
        scripts = (
            '[project]\nname = "vllm-omni"\n[project.entry-points."vllm.general_plugins"]\nx = "a.b:c"\n'
        )
        write(made.repo, "pyproject.toml", scripts)
        git(made.repo, "add", "pyproject.toml")
        git(made.repo, "commit", "-q", "-m", "Name the project")
        deleted = {"path": OTHER, "sha256_merged": None, "sha256_ours": "0" * 64}
        made.write_plan(files=[*made.plan["files"], deleted])
        (made.repo / OTHER).unlink()
        made.record_all()
        write(made.repo, "vllm_omni/secret.txt", "untracked, and nobody's business")
        yield made


@pytest.fixture(scope="module")
def evidence(upgrade: Upgrade, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a machine sends back: here a CPU, since it is about the way there and back."""
    folder = tmp_path_factory.mktemp("there")
    options = ["--rungs", "cpu-dummy,cpu-real", "--model", str(kit.model(folder))]
    pack = packed(upgrade, *options, "--", "--max-model-len", "64")
    done = away(pack, kit.machine(folder / "python"), folder / "work")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "work/evidence.tar.gz"


@contextmanager
def edited(upgrade: Upgrade) -> Iterator[None]:
    before = (upgrade.repo / WORKER).read_text()
    write(upgrade.repo, WORKER, "NAME = 'edited after the pack was made'\n")
    yield
    write(upgrade.repo, WORKER, before)


@contextmanager
def dropped(upgrade: Upgrade) -> Iterator[None]:
    aside = (upgrade.repo / NEW).rename(upgrade.workspace / "aside")
    yield
    aside.rename(upgrade.repo / NEW)


@contextmanager
def on_another_commit(upgrade: Upgrade) -> Iterator[None]:
    git(upgrade.repo, "commit", "-q", "--allow-empty", "-m", "somebody else's")
    yield
    git(upgrade.repo, "reset", "-q", "--soft", "HEAD^")


@contextmanager
def begun_again(upgrade: Upgrade) -> Iterator[None]:
    folder = upgrade.job.store.folder
    aside = folder.rename(upgrade.workspace / "aside")
    upgrade.record("emulate", "emulated dry-run")
    yield
    shutil.rmtree(folder)
    aside.rename(folder)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (edited, f"files with other contents: {WORKER}"),
        (dropped, f"files with other contents: {NEW}"),
        (on_another_commit, "commit "),
        (begun_again, "a chain of evidence that did not begin here"),
    ],
)
def test_what_ran_for_something_else_is_refused(
    changed: Callable[[Upgrade], AbstractContextManager[None]],
    why: str,
    upgrade: Upgrade,
    evidence: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with changed(upgrade):
        code, said = imported(upgrade, evidence, capsys)
        assert (code, why in said["error"]) == (2, True), said
        assert "--pack" in said["try"]
        assert list(workspace_store(upgrade.workspace).records()) == []


def test_what_ran_elsewhere_is_evidence_of_the_job_here(
    upgrade: Upgrade, evidence: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = upgrade.head()
    git(upgrade.repo, "add", RUNNER, NEW)
    git(upgrade.repo, "commit", "-q", "-m", f"[NPU] Upgrade\n\nUpgrade-Job: {upgrade.job.id}")
    code, said = imported(upgrade, evidence, capsys)  # the delivery of the same files changes nothing
    git(upgrade.repo, "reset", "-q", before)
    assert (code, len(said["added"]), said["jobs"]) == (0, 2, [upgrade.job.id]), said
    tree = upgrade.job.records()[-1].tree
    standing = upgrade.job.store.standing(upgrade.job.records(), tree)
    assert {"CPU dummy", "CPU real"} <= {one.label for one in standing if one.gate == "serve"}
    assert imported(upgrade, evidence, capsys)[1]["known"] == said["added"]
    there = evidence.parent / "checkout"
    assert (there / RUNNER).read_text() == "NAME = 'upgraded'\n"
    assert [(there / name).exists() for name in (OTHER, "vllm_omni/secret.txt")] == [False, False]
    (ran,) = {str(one.environment["packages"]) for one in standing if one.gate == "serve"}
    assert "'vllm-omni': '0.22.0'" in ran


def test_evidence_that_was_put_into_another_chain_is_refused(
    upgrade: Upgrade, evidence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tarfile.open(evidence) as archive:
        archive.extractall(tmp_path / "open", filter="data")
    index = json.loads((tmp_path / "open/pack.json").read_text())
    index["of"]["chain"].remove(index["records"][0]["id"])
    (tmp_path / "open/pack.json").write_text(json.dumps(index))
    with tarfile.open(tmp_path / "changed.tar.gz", "w:gz") as archive:
        for path in (path for path in (tmp_path / "open").rglob("*") if path.is_file()):
            archive.add(path, path.relative_to(tmp_path / "open").as_posix())
    code, said = imported(upgrade, tmp_path / "changed.tar.gz", capsys)
    assert (code, "is not in the chain that it names" in said["error"]) == (2, True)


def test_a_pack_says_what_the_machine_lacks(upgrade: Upgrade, tmp_path: Path) -> None:
    python = kit.machine(tmp_path / "there-python")
    pack = packed(upgrade, "--npu", "--model", "/models/A")
    done = away(pack, python, tmp_path / "there")
    assert done.returncode == 3
    assert "no NPU: there is no /dev/davinci*" in done.stderr
    assert "nothing was run" in done.stderr
    (tmp_path / "other").mkdir()
    (tmp_path / "other/mine.txt").write_text("mine")
    assert away(pack, python, tmp_path / "other").returncode == 2
    assert os.listdir(tmp_path / "other") == ["mine.txt"]


def test_a_damaged_pack_runs_nothing(upgrade: Upgrade, tmp_path: Path) -> None:
    pack, damaged = packed(upgrade, "--npu", "--model", "A"), tmp_path / "damaged.pyz"
    with zipfile.ZipFile(pack) as whole, zipfile.ZipFile(damaged, "w") as other:
        for name in whole.namelist():
            other.writestr(name, whole.read(name) + (b"#" if name == f"checkout/{RUNNER}" else b""))
    done = away(damaged, Path(sys.executable), tmp_path / "there")
    assert (done.returncode, f"checkout/{RUNNER}" in done.stderr) == (2, True)
    assert not (tmp_path / "there").exists()


def test_without_an_upgrade_there_is_nothing_to_pack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["validate", "--npu", "--pack", str(tmp_path / "x"), "--workspace", str(tmp_path)]
    assert main("upgrade.py", "", ["validate"], words) == 2
    assert "no upgrade that was applied" in json.loads(capsys.readouterr().out)["error"]
