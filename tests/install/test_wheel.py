"""The wheels: built as a release builds them, installed into clean environments, and used from there."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from documented import COMMANDS, ROOT

pytestmark = [pytest.mark.install, pytest.mark.network]
OMNI, ASCEND = "pypi:vllm-omni==0.22.0", "pypi:vllm-ascend==0.23.0.post1"
UV = str(Path(sys.executable).with_name("uv"))
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
"""The user's own: releases and wheels that are there are not fetched again."""


@dataclass(frozen=True)
class Installed:
    """The programs of an installed wheel: the folder they are in, and the PATH of whoever calls them."""

    programs: Path
    path: str

    def run(self, *argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        program = str(self.programs / argv[0]) if "/" not in argv[0] else argv[0]
        env = clean() | {"PATH": self.path, "XDG_CACHE_HOME": str(CACHE)}
        return subprocess.run(
            [program, *argv[1:]], cwd=cwd, env=env, capture_output=True, text=True, timeout=300
        )

    def said(self, *argv: str, cwd: Path) -> dict:
        done = self.run(*argv, cwd=cwd)
        assert done.returncode in range(5), done.stderr
        return json.loads(done.stdout) | {"exit": done.returncode}


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_"))}


def called(*argv: str | Path, **variables: str) -> None:
    done = subprocess.run(list(map(str, argv)), env=clean() | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of the bundle and of the runners, each built from its sdist."""
    folder = tmp_path_factory.mktemp("dist")
    for project in (ROOT, ROOT / "runners"):
        called(UV, "build", "--out-dir", folder, project)
    return folder


@pytest.fixture(scope="module", params=["uv", "pip"])
def installed(
    request: pytest.FixtureRequest, dist: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """By ``uv tool install`` with its folder on PATH; by pip into an environment that nobody activated."""
    place = tmp_path_factory.mktemp(request.param)
    (wheel,) = dist.glob("vllm_npu_upgrade-*.whl")
    if request.param == "uv":
        where = {"UV_TOOL_DIR": str(place / "tools"), "UV_TOOL_BIN_DIR": str(place / "bin")}
        called(UV, "tool", "install", "--python", sys.executable, wheel, **where)
        return Installed(place / "bin", f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}")
    called(sys.executable, "-m", "venv", place / "env")
    called(place / "env/bin/python", "-m", "pip", "install", "--quiet", wheel)
    return Installed(place / "env/bin", os.environ["PATH"])


def test_each_command_tells_of_itself(installed: Installed, tmp_path: Path) -> None:
    for script, names in COMMANDS.items():
        program = f"npu-{Path(script).stem}"
        for name in names:
            done = installed.run(program, name, "--help", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith(f"usage: {program} {name}")
            assert f" {script} " not in done.stdout


def test_an_upgrade_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    """Each step names the next one as a program that is there."""
    found = installed.said("npu-upgrade", "discover", "--omni", OMNI, "--ascend", ASCEND, cwd=tmp_path)
    assert "cannot be loaded with this downstream" in found["summary"]
    merged = installed.said(
        "npu-upgrade", "merge", "--omni", OMNI, "--ascend", ASCEND, "--out", "job", cwd=tmp_path
    )
    assert (merged["exit"], merged["verdict"]) == (1, "FAIL")  # conflicts are left
    asked = installed.said(*shlex.split(merged["next"]), cwd=tmp_path)  # of the pair first, then of conflicts
    assert asked["summary"].startswith("a person is needed")
    workspace = ("--workspace", str(tmp_path))
    answer = installed.said("npu-upgrade", "next", *workspace, cwd=tmp_path)
    assert Path(shlex.split(answer["next"])[0]).name == "npu-upgrade"
    audit = installed.said("npu-upgrade", "audit", "--omni", OMNI, "--ascend", ASCEND, cwd=tmp_path)
    assert audit["verdict"] == "FAIL"
    page = installed.said("npu-upgrade", "report", *workspace, cwd=tmp_path)
    assert Path(page["page"]).is_file()


def test_what_the_commands_read_beside_themselves(installed: Installed, tmp_path: Path) -> None:
    for argv in (("env", "list"), ("emulate", "--list"), ("explain", "--check")):
        assert installed.said("npu-upgrade", *argv, cwd=tmp_path)["verdict"] == "PASS"
    wrong = installed.said("npu-adapt", "next", cwd=tmp_path)
    assert wrong["exit"] == 2
    assert "npu-adapt analyze MODEL" in wrong["try"]


def test_a_pack_of_the_wheel_is_that_of_the_checkout(installed: Installed, tmp_path: Path) -> None:
    program = "import pathlib, sys; from npu_upgrade.gates.validation.hardware import shipment"
    program += "; shipment(pathlib.Path(sys.argv[1]))"
    python = (installed.programs / "npu-upgrade").read_text().partition("\n")[0].removeprefix("#!")
    called(python, "-c", program, tmp_path / "wheel")
    called(sys.executable, "-c", program, tmp_path / "checkout", PYTHONPATH=str(ROOT / "scripts"))
    found = [
        sorted(str(one.relative_to(at)) for one in at.rglob("*") if one.is_file())
        for at in (tmp_path / "wheel", tmp_path / "checkout")
    ]
    assert found[0] == found[1]


def test_the_runners_are_a_wheel_of_their_own(dist: Path) -> None:
    (runners,) = dist.glob("omni_runners-*.whl")
    (bundle,) = dist.glob("vllm_npu_upgrade-*.whl")
    there = {
        path.relative_to(ROOT / "runners").as_posix()
        for package in ("omni_runners", "omni_stages")
        for path in (ROOT / "runners" / package).rglob("*.py")
    }
    assert there <= set(zipfile.ZipFile(runners).namelist())
    assert not [
        name for name in zipfile.ZipFile(bundle).namelist() if name.startswith(("omni_", "bench", "tests"))
    ]
