"""What is made from the trees before an emulated run: requirements, packages, entry points, checks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sources_kit import write_tree

from npu_upgrade.environments import store
from npu_upgrade.gates.emulation import environment, packages, requirements
from npu_upgrade.gates.emulation.environment import Environment
from npu_upgrade.gates.emulation.packages import entry_points
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.sources.tree import SourceTree, open_source, overlay

PINS = "torch==2.10.0\ntorch-npu==2.10.0.post4\ntorchvision==0.25.0\ntransformers==5.14.1\n"
VLLM = {"vllm/__init__.py": "", "requirements/common.txt": "fastapi >= 0.133.0  # why\nnumpy\n-r more.txt\n"}
VLLM |= {
    "requirements/more.txt": "nothing; python_version < '3'\nflashinfer-python==1\n--extra-index-url x\n"
}
SETUP = (
    "from setuptools import setup\nsetup(name='x', entry_points={'g.one': ['a = m:f'], 'g.two': 'b = m'})\n"
)


def tree(folder: Path, files: dict[str, str]) -> SourceTree:
    return open_source(f"dir:{write_tree(folder, files)}")


@pytest.fixture
def vllm(tmp_path: Path) -> SourceTree:
    return tree(tmp_path / "vllm", VLLM)


def ascend(folder: Path, text: str, **more: str) -> SourceTree:
    return tree(folder, {"vllm_ascend/__init__.py": "", "requirements.txt": text} | more)


def test_pins_of_torch_win_and_bounds_of_vllm_count(tmp_path: Path, vllm: SourceTree) -> None:
    text = PINS + "fastapi<0.124.0\nscipy\nquart>9\ncmake\ntriton-ascend==3\nnumpy<2\n"
    spec = requirements.environment_spec(None, ascend(tmp_path / "ascend", text), vllm)
    names = {line for line in spec.requirements if not line.startswith(("coverage", "pytest"))}
    pins = {"torch==2.10.0", "torch-npu==2.10.0.post4", "torchvision==0.25.0"}
    assert names == pins | {"fastapi>=0.133.0", "numpy", "scipy", "quart", "transformers==5.14.1"}
    assert set(spec.overrides) == pins | {"transformers==5.14.1", "numpy<2", "torchaudio==2.10.0"}
    assert spec.heavy


def test_torch_npu_that_imports_pkg_resources_gets_it(tmp_path: Path, vllm: SourceTree) -> None:
    old = PINS.replace("2.10.0.post4", "2.9.0").replace("2.10.0", "2.9.0")
    specs = [
        requirements.environment_spec(None, ascend(tmp_path / name, text), vllm)
        for name, text in (("new", PINS), ("old", old))
    ]
    assert ["setuptools<81" in spec.requirements for spec in specs] == [False, True]


def test_unpinned_members_of_torchs_family_are_those_of_the_pinned_torch(tmp_path: Path, vllm) -> None:
    text = PINS.replace("torchvision==0.25.0", "torchvision").replace("2.10.0", "2.9.1")
    spec = requirements.environment_spec(None, ascend(tmp_path / "ascend", text), vllm)
    assert {"torchvision==0.24.1", "torchaudio==2.9.1"} < set(spec.overrides)


def test_open_bound_of_transformers_is_added(tmp_path: Path, vllm: SourceTree) -> None:
    text = PINS.replace("transformers==5.14.1", "transformers>=4.57")
    spec = requirements.environment_spec(None, ascend(tmp_path / "ascend", text), vllm)
    assert "transformers>=4.57" in spec.requirements
    assert not any("transformers" in line for line in spec.overrides)


def test_omni_by_its_metadata(tmp_path: Path, vllm: SourceTree) -> None:
    developers = ['pytest; extra == "dev"', 'step-audio2==1; extra == "dev"']
    lines = ["av>=14", "fa3-fwd==1", "kernels==2", *developers, "vllm==0.1"]
    metadata = "Name: x\n" + "".join(f"Requires-Dist: {line}\n" for line in lines)
    omni = tree(tmp_path / "o", {"vllm_omni/__init__.py": "", "vllm_omni-1.dist-info/METADATA": metadata})
    npu = ascend(tmp_path / "ascend", PINS)
    spec, without = (requirements.environment_spec(one, npu, vllm) for one in (omni, None))
    assert set(spec.requirements) - set(without.requirements) == {"av>=14", "step-audio2==1"}
    assert spec.folder != without.folder


@pytest.mark.parametrize("common", [True, False])
def test_a_checkout_needs_what_models_import_and_an_extra_declares(
    tmp_path: Path, vllm: SourceTree, common: bool
) -> None:
    project = '[project]\ndependencies = ["av>=14"]\n[project.optional-dependencies]\n'
    files = {"vllm_omni/__init__.py": "", "pyproject.toml": project + 'dev = ["pytest", "step-audio2==1"]\n'}
    files |= {"requirements/common.txt": "av>=14\n"} if common else {}
    npu = ascend(tmp_path / "ascend", PINS)
    omni = tree(tmp_path / "o", files)
    spec, without = (requirements.environment_spec(one, npu, vllm) for one in (omni, None))
    assert set(spec.requirements) - set(without.requirements) == {"av>=14", "step-audio2==1"}


def test_equal_requirements_share_an_environment(tmp_path: Path, vllm: SourceTree) -> None:
    one = ascend(tmp_path / "one", "# first\n" + PINS)
    other = ascend(tmp_path / "other", "".join(reversed(PINS.splitlines(keepends=True))) + "pip\n")
    specs = [requirements.environment_spec(None, each, vllm) for each in (one, other)]
    assert specs[0].folder == specs[1].folder


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch==2.10.0\n", "pins no exact"),
        ("torch>=2.10\ntorch-npu==2.10.0\n", "pins no exact"),
        ("torch==2.10.0\ntorch-npu==2.9.0.post1\n", "torch 2.10.0 with torch-npu 2.9.0.post1"),
        ("torch = 2\n", "no requirement"),
    ],
)
def test_torch_that_does_not_match_is_said(tmp_path: Path, vllm: SourceTree, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        requirements.environment_spec(None, ascend(tmp_path / "ascend", text), vllm)


@pytest.mark.parametrize("npu", ["2.10.0", "2.10.0.post4", "2.10.0rc1"])
def test_torch_npu_of_the_same_torch(tmp_path: Path, vllm: SourceTree, npu: str) -> None:
    text = f"torch==2.10.0\ntorch-npu=={npu}\n"
    requirements.environment_spec(None, ascend(tmp_path / "ascend", text), vllm)


def test_wrong_python_is_said(tmp_path: Path, vllm: SourceTree, monkeypatch: pytest.MonkeyPatch) -> None:
    class File:
        def __init__(self, filename: str) -> None:
            self.filename = filename

    class Found:
        files = tuple(
            File(f"torch_npu-2-cp3{minor}-cp3{minor}-manylinux_2_28_x86_64.whl") for minor in (9, 10)
        )

    monkeypatch.setattr(requirements, "release", lambda name, version: Found())
    spec = requirements.environment_spec(None, ascend(tmp_path / "ascend", PINS), vllm)
    with pytest.raises(Blocked, match=r"torch-npu 2\.10\.0\.post4 has no wheel for Python 3") as blocked:
        requirements.check_python(spec)
    assert blocked.value.expected == "Python 3.9, 3.10"
    assert "python3.10" in blocked.value.try_


def test_machine_that_lacks_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.platform, "system", lambda: "Linux")
    monkeypatch.setattr(environment.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(environment.shutil, "which", lambda name: None if name == "nm" else f"/bin/{name}")
    with pytest.raises(Blocked, match="need nm, not found") as blocked:
        environment.check_machine()
    assert "apt install binutils" in blocked.value.try_


@pytest.mark.parametrize(
    "here", [("Linux", "aarch64"), ("Darwin", "arm64"), ("Windows", "AMD64")], ids=" ".join
)
def test_machine_without_wheels(monkeypatch: pytest.MonkeyPatch, here: tuple[str, str]) -> None:
    monkeypatch.setattr(environment.platform, "system", lambda: here[0])
    monkeypatch.setattr(environment.platform, "machine", lambda: here[1])
    with pytest.raises(Blocked, match=f"does not run on {' '.join(here)}"):
        environment.check_machine()


def test_entry_points_of_setup_and_pyproject(tmp_path: Path) -> None:
    both = {"vllm_ascend/__init__.py": "", "setup.py": SETUP}
    read = entry_points(tree(tmp_path / "a", both), "vllm_ascend")
    assert read == {"g.one": {"a": "m:f"}, "g.two": {"b": "m"}}
    toml = '[project.scripts]\nx = "m:main"\n[project.entry-points."g.one"]\nC = "m:g"\n'
    read = entry_points(tree(tmp_path / "b", {"vllm/__init__.py": "", "pyproject.toml": toml}), "vllm")
    assert read == {"console_scripts": {"x": "m:main"}, "g.one": {"C": "m:g"}}
    computed = {"vllm/__init__.py": "", "setup.py": "setup(entry_points=points())"}
    with pytest.raises(BadInput, match="computed"):
        entry_points(tree(tmp_path / "c", computed), "vllm")


def look(folder: Path, code: str) -> str:
    command = [sys.executable, "-P", "-c", code]
    return subprocess.check_output(command, env={"PYTHONPATH": str(folder)}, text=True).strip()


def test_package_can_be_imported_and_found(tmp_path: Path) -> None:
    npu = ascend(tmp_path / "a", PINS, **{"setup.py": SETUP, "vllm_ascend/built.so": "x"})
    (tmp_path / "a" / "vllm_ascend" / "data.bin").write_bytes(b"\xff\0")
    (tmp_path / "a" / "csrc").mkdir()
    (tmp_path / "a" / "csrc" / "torch_binding.cpp").write_text("//")
    folder = packages.materialise(npu, "vllm_ascend")
    code = (
        "from importlib.metadata import entry_points as e, version as v\n"
        "from vllm_ascend import _build_info\n"
        "from vllm_ascend._version import __version__\n"
        "print(v('vllm-ascend'), __version__, _build_info.__device_type__, e(group='g.one')['a'].value)"
    )
    assert look(folder, code) == "0.0.0+unknown 0.0.0+unknown A2 m:f"
    assert (folder / "vllm_ascend" / "data.bin").read_bytes() == b"\xff\0"
    assert (folder / "csrc" / "torch_binding.cpp").exists()
    assert not (folder / "vllm_ascend" / "built.so").exists()
    assert not (folder / "requirements.txt").exists()
    assert not (folder / "vllm_ascend" / "data.bin").stat().st_mode & 0o222


def test_a_cache_behind_a_link_is_named_as_its_processes_name_it(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "link"))
    folder = packages.materialise(ascend(tmp_path / "a", PINS), "vllm_ascend")
    assert folder.is_relative_to(tmp_path / "disk")


def test_same_content_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(packages, "say", said.append)
    npu = ascend(tmp_path / "a", PINS)
    first = packages.materialise(npu, "vllm_ascend")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert packages.materialise(open_source(f"dir:{tmp_path / 'b'}"), "vllm_ascend") == first
    assert "".join(said).count("unpacking") == 1
    assert packages.materialise(overlay(npu, {"vllm_ascend/new.py": "X = 1\n"}), "vllm_ascend") != first
    (tmp_path / "a" / "vllm_ascend" / "__init__.py").write_text("X = 2\n")
    changed = packages.materialise(npu, "vllm_ascend")
    assert changed != first
    assert look(changed, "import vllm_ascend; print(vllm_ascend.X)") == "2"


def test_interrupted_or_damaged_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npu = ascend(tmp_path / "a", PINS)

    def stopped(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(packages, "generated_files", stopped)
        with pytest.raises(KeyboardInterrupt):
            packages.materialise(npu, "vllm_ascend")
    assert not [path for path in packages._store().iterdir() if path.is_dir()]
    folder = packages.materialise(npu, "vllm_ascend")
    (folder / "vllm_ascend" / "_build_info.py").unlink()
    assert packages.materialise(npu, "vllm_ascend") == folder
    assert (folder / "vllm_ascend" / "_build_info.py").exists()


def test_another_project_is_refused(vllm: SourceTree) -> None:
    with pytest.raises(BadInput, match="has no package vllm_omni"):
        packages.materialise(vllm, "vllm_omni")


def test_files_by_their_paths_in_the_trees(tmp_path: Path) -> None:
    here = Environment(Path("python"), {}, {"vllm": tmp_path / "x", "vllm_ascend": tmp_path / "y"})
    assert here.path("vllm_ascend/a/b.py") == tmp_path / "y" / "vllm_ascend" / "a" / "b.py"
    assert here.tree_path(str(tmp_path / "x" / "vllm" / "c.py")) == "vllm/c.py"
    with pytest.raises(ValueError, match="none of the packages"):
        here.tree_path("/elsewhere/vllm/c.py")


def test_emulator_starts_by_its_entry_point() -> None:
    code = "from importlib.metadata import entry_points as e\n"
    code += "print(*[x.value for x in e(group='torch.backends')])"
    assert look(packages.emulator_info(), code) == "npu_emulator.autoload:start"


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """An environment with the metadata of torch and torch-npu, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (site,) = (tmp_path / "env").glob("lib/python3*/site-packages")
    for name in ("torch", "torch_npu"):
        (site / f"{name}-2.0.dist-info").mkdir()
        (site / f"{name}-2.0.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 2.0\n")
    return tmp_path / "env" / "bin" / "python"


def test_native_parts_that_cannot_be_built(interpreter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # there are no headers of torch_npu, so the compiler fails
    with pytest.raises(Blocked, match=r"cannot be built \(exit 1\)") as blocked:
        environment.native_parts(interpreter)
    assert "acl_runtime.cpp" in blocked.value.what
    left = store.cache_root() / "emulation" / "native"
    assert not [path for path in left.iterdir() if path.is_dir()]


def test_native_parts_are_built_once(interpreter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def build(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        built.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(environment.subprocess, "run", build)
    assert environment.native_parts(interpreter) == environment.native_parts(interpreter)
    assert len(built) == 1
    other = interpreter.parents[1] / "lib"
    (info,) = other.glob("python3*/site-packages/torch_npu-2.0.dist-info/METADATA")
    info.write_text("Name: torch_npu\nVersion: 2.0.post1\n")
    environment.native_parts(interpreter)
    assert len(built) == 2
