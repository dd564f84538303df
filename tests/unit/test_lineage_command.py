"""The lineage command: its result, its next command, and what it records."""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path

import pytest
from lineage_kit import (
    UPSTREAM,
    body,
    commit_at,
    downloads,
    git_at,
    omni_files,
    publish,
    steps,
    upstream_clone,
    upstream_source,
    write_tree,
)
from sources_kit import clean_machine, server  # noqa: F401

from npu_upgrade.cli.main import main
from npu_upgrade.commands import lineage
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.lineage.origins import Origins
from npu_upgrade.lineage.units import Relation
from npu_upgrade.sources.tree import open_source

PYTEST_MAIN = ("upgrade.py", "test", ["lineage"])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of an upstream with two versions, and an omni that copied the first."""
    upstream_clone(
        tmp_path / "ascend",
        {"2026-01-01": {"run": steps(20), "stop": steps(8)}, "2026-01-31": {"run": steps(20, _4="new")}},
    )
    ours = body("run", steps(20)) + "\n\n" + body("talk", steps(3)) + "\n\n" + body("stop", ["quiet"])
    commit_at(tmp_path / "omni", "2026-02-10", omni_files(base=ours))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def run(omni: str, ascend: str = "pypi:vllm-ascend") -> Result:
    return lineage.run(argparse.Namespace(omni=omni, ascend=ascend, downstream=None, upstream=[]))


def test_the_table_the_data_and_the_next_command(world: Path) -> None:
    result = run(f"git:{world}/omni@main", f"git:{world}/ascend")
    head = open_source(f"git:{world}/ascend@HEAD").spec
    omni = open_source(f"git:{world}/omni@main").spec
    assert result.verdict is Verdict.PASS
    assert str(result.next) == f"upgrade.py merge --omni {omni} --ascend {head} --out upgrade-out"
    assert result.data["ascend"] == head
    assert result.data["omni"]["spec"] == omni
    base = result.data["base"]
    assert base["score"] == 1.0
    assert base["date"].startswith("2026-01-01")
    assert base["spec"].startswith(f"git:{world}/ascend@{base['label']}")
    copied, overridden = result.data["methods"]
    assert copied["copied"]
    assert copied["best"] == base["label"]
    assert copied["behind"] == {"versions": 1, "days": 30}
    assert not overridden["copied"]
    assert overridden["name"] == "OmniNPUModelRunner.stop"
    assert result.data["own"][0] == "base: OmniNPUModelRunner.talk"
    assert "1 version / 30 days" in result.text
    assert "base stop (1 of 2 statements" in result.text
    assert base["label"] in result.summary
    json.dumps(result.as_json())


def test_from_the_command_line(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["lineage", "--omni", f"dir:{world}/omni", "--ascend", f"git:{world}/ascend", "--format", "text"]
    assert main(*PYTEST_MAIN, argv) == 0
    out = capsys.readouterr().out
    assert "copied from" in out
    assert "base run" in out
    assert "next: upgrade.py merge" in out


def test_nothing_copied_is_inconclusive(world: Path) -> None:
    write_tree(world / "plain", omni_files(base=body("run", ["own"])))
    result = run(f"dir:{world}/plain", f"git:{world}/ascend@main")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.data["base"] is None
    assert result.next is None


def test_the_newest_release_is_the_one_to_upgrade_to(server, world: Path) -> None:  # noqa: F811
    one, other = upstream_source({"run": steps(20)}), upstream_source({"run": steps(20, _1="new")})
    rows = {"0.9.0": ("2026-01-01", one), "0.11.0rc1": ("2026-03-01", other), "0.10.0": ("2026-04-01", other)}
    publish(server, rows | {"0.12.0": ("2026-05-01", other)}, yanked=("0.12.0",))
    result = run(f"git:{world}/omni@main")
    assert result.data["base"]["spec"] == "pypi:vllm-ascend==0.9.0"
    assert result.next
    assert " --ascend pypi:vllm-ascend==0.11.0rc1 " in str(result.next)
    assert downloads(server) == {"0.9.0", "0.11.0rc1"}
    named = run(f"git:{world}/omni@main", "pypi:vllm-ascend==0.10.0")
    assert named.next
    assert " --ascend pypi:vllm-ascend==0.10.0 " in str(named.next)


def test_wrong_specs_are_refused(world: Path) -> None:
    with pytest.raises(BadInput, match="names no source kind"):
        run(f"git:{world}/omni@main", "vllm-ascend")
    with pytest.raises(BadInput, match="the ref is missing"):
        run(f"git:{world}/omni@main", f"git:{world}/nowhere")
    with pytest.raises(BadInput, match="not a vllm-omni tree"):
        run(f"git:{world}/ascend@main", f"git:{world}/ascend")


def test_nothing_is_made_where_no_job_is_open(world: Path) -> None:
    run(f"git:{world}/omni@main", f"git:{world}/ascend@main")
    assert list((world / "work").iterdir()) == []


def test_the_upstream_path_comes_from_omni(world: Path) -> None:
    moved = UPSTREAM.path.replace("model_runner_v1", "runner")
    commit_at(world / "ascend", "2026-03-01", {moved: upstream_source({"run": steps(20)})})
    own = "from vllm_ascend.worker.runner import NPUModelRunner\n"
    tree = write_tree(world / "new", omni_files(base=body("run", steps(20)), own_import=own))
    assert run(f"dir:{tree}", f"git:{world}/ascend").data["base"]["date"].startswith("2026-03-01")


def test_any_downstream_on_its_upstream(world: Path) -> None:
    files = {
        "motor/__init__.py": "",
        "motor/engine.py": "from vllm_ascend.worker.model_runner_v1 import NPUModelRunner\n\n\n"
        f"class Engine(NPUModelRunner):\n{body('run', steps(20))}\n",
    }
    commit_at(world / "motor", "2026-02-10", files)
    specs = {"downstream": f"git:{world}/motor@main", "upstream": [f"git:{world}/ascend@main"]}
    result = lineage.run(argparse.Namespace(omni=None, ascend="", **specs))
    assert result.verdict is Verdict.PASS
    assert result.data["project"] | {"package": "motor", "device": ""} == result.data["project"]
    (run_,) = [unit for unit in result.data["units"] if unit["name"] == "Engine.run"]
    assert run_["relation"] == "copy"
    assert run_["upstream"] == "vllm_ascend/worker/model_runner_v1.py:NPUModelRunner.run"
    assert (run_["matched"], run_["behind"], run_["compared"]) == (21, 1, "2 versions")
    assert "motor/engine.py" in result.text
    with pytest.raises(BadInput, match="without --upstream"):
        lineage.run(argparse.Namespace(omni=None, ascend="", downstream=specs["downstream"], upstream=[]))


def test_a_copy_below_a_version_guard_that_holds_has_a_base(tmp_path: Path) -> None:
    run = textwrap.dedent(body("run", steps(14)))
    commit_at(tmp_path / "vllm", "2026-01-01", {"vllm/__init__.py": "", "vllm/mill.py": f"{run}\n"})
    git_at(tmp_path / "vllm", "2026-01-01", "tag", "v0.27.1")
    guarded = f"if vllm_version_is('0.27.1'):\n{textwrap.indent(run, '    ')}\nelse:\n    run = None\n"
    commit_at(
        tmp_path / "ascend", "2026-01-10", {"vllm_ascend/__init__.py": "", "vllm_ascend/mill.py": guarded}
    )
    spec = f"git:{tmp_path}/vllm@v0.27.1"
    side = Downstream(open_source(f"git:{tmp_path}/ascend@HEAD"), {"vllm": open_source(spec)})
    copies = [unit for unit in Origins(side, {"vllm": spec}).units if unit.name]
    assert [(unit.upstream, unit.relation, bool(unit.base)) for unit in copies] == [
        ("vllm/mill.py:run", Relation.COPY, True)
    ]


def test_a_plain_folder_has_no_history(world: Path) -> None:
    plain = write_tree(world / "plain", {UPSTREAM.path: upstream_source({"run": steps(20)})})
    with pytest.raises(BadInput, match="no history to find the base in"):
        run(f"git:{world}/omni@main", f"dir:{plain}")
    specs = {"downstream": f"git:{world}/omni@main", "upstream": [f"dir:{plain}"]}
    result = lineage.run(argparse.Namespace(omni=None, ascend="", **specs))
    (copy,) = [unit for unit in result.data["units"] if unit["relation"] == "copy"]
    assert copy["compared"] == f"vllm-ascend dir:{plain} only"
    assert "base" not in copy


def test_kept_units_are_those_of_the_same_trees_and_history(world: Path) -> None:
    def behind() -> int:
        units = run(f"dir:{world}/omni", f"git:{world}/ascend").data["units"]
        return max(unit.get("behind", 0) for unit in units)

    assert behind() == 1
    upstream_clone(world / "ascend", {"2026-02-05": {"run": steps(20, _4="newer"), "stop": steps(8)}})
    assert behind() == 2
    runner = next((world / "omni").rglob("npu_model_runner.py"))
    names = [unit["name"] for unit in run(f"dir:{world}/omni", f"git:{world}/ascend").data["units"]]
    runner.write_text(runner.read_text() + "\n\ndef later():\n    return 1\n")
    again = [unit["name"] for unit in run(f"dir:{world}/omni", f"git:{world}/ascend").data["units"]]
    assert set(again) - set(names) == {"later"}
