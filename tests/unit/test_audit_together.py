"""Whether a target, a vllm and a downstream can be loaded together, and which neighbour can."""

from __future__ import annotations

from pathlib import Path

import pytest
from lineage_kit import commit_at, git_at, write_tree
from merge_kit import runner_files
from packaging.version import Version

from npu_upgrade.audit import together
from npu_upgrade.audit.together import look_together, neighbour
from npu_upgrade.sources.tree import SourceTree, open_source

GPU = "vllm_omni/worker/gpu_model_runner.py"
VLLM = {"vllm/__init__.py": "", "vllm/ops.py": "def add():\n    pass\n", "vllm/v1.py": "class R:\n    pass\n"}
ASCEND = {
    "vllm_ascend/__init__.py": "def register():\n    return 'vllm_ascend.platform.Platform'\n",
    "vllm_ascend/platform.py": "RUNNER = 'vllm_ascend.worker.model_runner_v1.NPUModelRunner'\n",
    "vllm_ascend/worker/__init__.py": "",
    "vllm_ascend/worker/model_runner_v1.py": "from vllm_ascend.patch import p\nfrom vllm.v1 import R\n\n\n"
    "class NPUModelRunner(R):\n    pass\n",
    "vllm_ascend/patch/__init__.py": "",
    "vllm_ascend/patch/p.py": "from vllm.ops import add\n",
    "vllm_ascend/unused.py": "from vllm.ops import never\n",
}
LATER = {"vllm/ops.py": "def subtract():\n    pass\n"}


def tree(folder: Path, files: dict[str, str]) -> SourceTree:
    return open_source(f"dir:{write_tree(folder, files)}")


def fails(tmp_path: Path, ascend: dict[str, str], vllm: dict[str, str]) -> list[str]:
    trees = tree(tmp_path / "ascend", ASCEND | ascend), tree(tmp_path / "vllm", VLLM | vllm)
    return [f"{one.here.path} {one.subject}" for one in look_together(*trees, "asked for", None).target]


def test_all_that_is_loaded_finds_its_imports(tmp_path: Path) -> None:
    assert fails(tmp_path, {}, {}) == []


@pytest.mark.parametrize(
    ("setup", "gone"),
    [
        ('logger = getLogger()\nutils = 1\nCMakeExtension(name="vllm.kernels_C")\n', True),
        ('CMakeExtension(name="vllm.entry.utils")\n', False),
        ('copy("vllm/entry")\n', False),
    ],
)
def test_a_word_in_the_build_makes_no_module(tmp_path: Path, setup: str, gone: bool) -> None:
    ascend = {"vllm_ascend/patch/p.py": "from vllm.entry.utils import parse\nimport vllm.kernels_C\n"}
    made = {} if gone else {"vllm/kernels_C.pyi": ""}
    assert fails(tmp_path, ascend, {"setup.py": setup} | made) == (
        ["vllm_ascend/patch/p.py vllm.entry.utils.parse"] if gone else []
    )


def test_a_module_reached_by_paths_and_imports_does_not(tmp_path: Path) -> None:
    assert fails(tmp_path, {}, LATER) == ["vllm_ascend/patch/p.py vllm.ops.add"]


def test_what_is_guarded_or_waits_for_a_call_is_no_reason(tmp_path: Path) -> None:
    guarded = "try:\n    from vllm.ops import add\nexcept ImportError:\n    add = None\n"
    late = "def f():\n    from vllm.ops import add\n"
    assert fails(tmp_path, {"vllm_ascend/patch/p.py": guarded + late}, LATER) == []


CHOSEN = "def load(v2):\n    if v2:\n        from vllm_ascend.patch import p\n        p.run()\n"


@pytest.mark.parametrize(("path", "reached"), [("worker/model_runner_v1.py", False), ("platform.py", True)])
def test_a_branch_of_a_function_counts_where_a_root_dispatches(
    tmp_path: Path, path: str, reached: bool
) -> None:
    runner = {"vllm_ascend/worker/model_runner_v1.py": "from vllm.v1 import R\n"}
    paths = "RUNNER = 'vllm_ascend.worker.model_runner_v1.NPUModelRunner'\n"
    files = runner | {"vllm_ascend/platform.py": paths}
    files[f"vllm_ascend/{path}"] += CHOSEN
    assert fails(tmp_path, files, LATER) == (["vllm_ascend/patch/p.py vllm.ops.add"] if reached else [])


def test_the_downstream_is_judged_by_its_main_side(tmp_path: Path) -> None:
    ascend, vllm = tree(tmp_path / "ascend", ASCEND), tree(tmp_path / "vllm", VLLM)
    files = runner_files("    def run(self):\n        from vllm_ascend.gone import x\n")
    omni = tree(tmp_path / "omni", files | {GPU: "from vllm.engine import E\n\n\n" + files[GPU]})
    found = look_together(ascend, vllm, "asked for", omni)
    assert not found.can
    assert found.target == []
    assert [one.here.path for one in found.downstream] == [GPU]


def test_the_nearest_commit_that_can(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shas = [commit_at(clone, "2026-01-01", ASCEND)]
    for number in range(2, 8):
        shas.append(commit_at(clone, f"2026-01-0{number}", {"vllm_ascend/n.py": f"n = {number}\n"}))
    fixed = commit_at(clone, "2026-01-09", {"vllm_ascend/patch/p.py": "from vllm.ops import subtract\n"})
    commit_at(clone, "2026-01-10", {"vllm_ascend/n.py": "n = 10\n"})
    git_at(clone, "2026-01-10", "branch", "-q", "other", shas[0])
    vllm = tree(tmp_path / "vllm", VLLM | LATER)
    target = open_source(f"git:{clone}@{shas[3]}")
    failing = look_together(target, vllm, "asked for", None).target
    assert neighbour(target, vllm, failing) == f"git:{clone}@{fixed}"


def test_an_older_one_where_no_newer_one_can(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    works = commit_at(clone, "2026-01-01", ASCEND | {"vllm_ascend/patch/p.py": "p = 1\n"})
    commit_at(clone, "2026-01-02", {"vllm_ascend/patch/p.py": "from vllm.ops import add\n"})
    target = open_source(f"git:{clone}@HEAD")
    vllm = tree(tmp_path / "vllm", VLLM | LATER)
    failing = look_together(target, vllm, "asked for", None).target
    assert neighbour(target, vllm, failing) == f"git:{clone}@{works}"


def test_what_a_project_lacks_of_its_own_is_no_reason(tmp_path: Path) -> None:
    """No other vllm and no other target would cure it."""
    assert fails(tmp_path, {"vllm_ascend/patch/p.py": "from vllm_ascend.worker import gone\n"}, {}) == []


def test_releases_of_the_series_of_the_vllm_are_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("0.25.1", "0.26.0rc1", "0.26.0", "0.27.1", "0.28.0rc1", "0.28.0", "0.29.0", "0.30.0")
    monkeypatch.setattr(together, "versions_of", lambda project: list(map(Version, names)))
    named, newer, older = together._releases("vllm-ascend", "0.29.0", "0.26.0+cpu")
    assert named == ["pypi:vllm-ascend==0.26.0", "pypi:vllm-ascend==0.26.0rc1"]
    assert (newer, older[0]) == (["pypi:vllm-ascend==0.30.0"], "pypi:vllm-ascend==0.28.0")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", '[project.scripts]\nomni = "vllm_omni.cli.main:main"\n'),
        ("setup.py", "setup(entry_points={'vllm.general_plugins': ['omni = vllm_omni.cli.main:main']})\n"),
        ("vllm_omni-1.0.dist-info/entry_points.txt", "[console_scripts]\nomni = vllm_omni.cli.main:main\n"),
    ],
)
def test_what_an_entry_point_imports_is_loaded(tmp_path: Path, path: str, text: str) -> None:
    ascend, vllm = tree(tmp_path / "ascend", ASCEND), tree(tmp_path / "vllm", VLLM)
    served = {
        "vllm_omni/cli/main.py": "def main():\n    from vllm_omni.cli.api import app\n    return app\n",
        "vllm_omni/cli/api.py": "from vllm.engine import E as app\n",
    }
    files = runner_files("    def run(self):\n        return 1\n") | served
    assert look_together(ascend, vllm, "asked for", tree(tmp_path / "plain", files)).can
    found = look_together(ascend, vllm, "asked for", tree(tmp_path / "named", files | {path: text}))
    assert [one.here.path for one in found.downstream] == ["vllm_omni/cli/api.py"]


def test_what_the_device_side_imports_is_for_the_upgrade(tmp_path: Path) -> None:
    ascend, vllm = tree(tmp_path / "ascend", ASCEND), tree(tmp_path / "vllm", VLLM)
    files = runner_files("    def run(self):\n        return 1\n")
    path = next(path for path in files if "/npu/" in path and path.endswith("npu_model_runner.py"))
    main = {"pyproject.toml": f'[project.scripts]\nomni = "{path[:-3].replace("/", ".")}:main"\n'}
    broken = {path: f"from vllm.engine import E\n{files[path]}"}
    found = look_together(ascend, vllm, "asked for", tree(tmp_path / "omni", files | main | broken))
    assert found.can
    assert [one.here.path for one in found.device] == [path]


def test_a_neighbour_is_looked_for_again_by_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "clone"
    commit_at(clone, "2026-01-01", ASCEND)
    target, vllm = open_source(f"git:{clone}@HEAD"), tree(tmp_path / "vllm", VLLM | LATER)
    answers = iter(["first", "second"])
    monkeypatch.setattr(together, "_first", lambda *_: next(answers))
    assert neighbour(target, vllm, []) == "first"
    assert neighbour(target, vllm, []) == "first"
    monkeypatch.setattr(together, "code_digest", lambda *_: "other")
    assert neighbour(target, vllm, []) == "second"
