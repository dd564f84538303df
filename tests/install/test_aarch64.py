"""Linux on aarch64, as Ascend hosts are: its wheels are there, and the emulator's native parts compile."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from documented import ROOT
from npu_upgrade.environments.venvs import find_uv, uv_variables
from npu_upgrade.gates.emulation.requirements import environment_spec
from npu_upgrade.sources.tree import open_source

pytestmark = pytest.mark.network
MACHINE = ("--python-platform", "aarch64-manylinux_2_36", "--python-version", "3.11")
CROSS = "aarch64-linux-gnu-"
EM_AARCH64 = 183
OPENS_ONLY_AS_SOURCE = {"openai-whisper"}
"""Pure Python that has no wheel on any machine."""


def ran(*command: str | Path, **more) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stderr


def locked(folder: Path, omni: str, ascend: str, vllm: str) -> dict[str, dict]:
    """The packages of an emulated run of releases, as uv resolves them for aarch64."""
    trees = [
        open_source(f"pypi:{spec}")
        for spec in (f"vllm-omni=={omni}", f"vllm-ascend=={ascend}", f"vllm=={vllm}")
    ]
    spec = environment_spec(*trees)
    for name, lines in (("requirements.txt", spec.requirements), ("overrides.txt", spec.overrides)):
        (folder / name).write_text("\n".join(lines))
    lists = (folder / "requirements.txt", "--overrides", folder / "overrides.txt")
    best = ("--index-strategy", "unsafe-best-match", "--format", "pylock.toml", "-o", folder / "pylock.toml")
    ran(find_uv(), "pip", "compile", "--quiet", *MACHINE, *best, *lists, env=uv_variables())
    return {one["name"]: one for one in tomllib.loads((folder / "pylock.toml").read_text())["packages"]}


@pytest.mark.parametrize(
    "pair", [("0.22.0", "0.22.1rc1", "0.22.1"), ("0.30.0", "0.30.0rc2", "0.30.0")], ids=" ".join
)
def test_an_emulated_run_has_wheels_for_aarch64(pair: tuple[str, str, str], tmp_path: Path) -> None:
    found = locked(tmp_path, *pair)
    assert {name for name, one in found.items() if not one.get("wheels")} <= OPENS_ONLY_AS_SOURCE
    for name in ("torch", "torch-npu"):
        assert any("aarch64" in wheel["url"] for wheel in found[name]["wheels"])


@pytest.mark.install
@pytest.mark.skipif(shutil.which(f"{CROSS}g++") is None, reason="BLOCKED: no aarch64-linux-gnu-g++ on PATH")
def test_the_native_parts_compile_for_aarch64(tmp_path: Path) -> None:
    """Derived from the aarch64 torch-npu, by a cross compiler; nothing of it is run."""
    found = locked(tmp_path, "0.30.0", "0.30.0rc2", "0.30.0")
    pins = [f"{name}=={found[name]['version']}" for name in ("torch", "torch-npu")]
    ran(
        find_uv(),
        "pip",
        "install",
        "--no-deps",
        *MACHINE,
        "--target",
        tmp_path / "site",
        *pins,
        env=uv_variables(),
    )
    program = "import pathlib, sys; from npu_emulator import build\n"
    program += f"build.COMPILER, build.SYMBOLS = '{CROSS}g++', '{CROSS}nm'\n"
    program += "build.build(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))"
    ran(
        sys.executable,
        "-c",
        program,
        tmp_path / "native",
        tmp_path / "site",
        env=uv_variables() | {"PYTHONPATH": str(ROOT / "emulator")},
    )
    libraries = sorted((tmp_path / "native").rglob("*.so"))
    assert {"libascendcl.so", "libhccl.so", "_aten_kernels.so"} <= {path.name for path in libraries}
    assert {struct.unpack_from("<H", path.read_bytes(), 18)[0] for path in libraries} == {EM_AARCH64}
