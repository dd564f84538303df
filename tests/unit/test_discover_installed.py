"""What is installed, read from metadata of packages that must not be imported."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.installed import cann_toolkit, installed


def package(site: Path, name: str, version: str, direct_url: dict | None = None) -> None:
    """Metadata of one package, and a module that ends the interpreter when imported."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if direct_url:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    (site / f"{name.replace('-', '_')}.py").write_text("raise SystemExit('imported')\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


@pytest.mark.parametrize("python", [None, Path(sys.executable)])
def test_versions_and_origins_without_importing(site: Path, tmp_path: Path, python: Path | None) -> None:
    checkout = {"url": f"file://{tmp_path}/my%20vllm", "dir_info": {"editable": True}}
    package(site, "vllm", "0.30.0+empty", checkout)
    package(
        site,
        "vllm-ascend",
        "0.30.0rc2",
        {"url": "https://x/y.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
    )
    package(site, "torch-npu", "2.10.0.post4", {"url": "https://x/w.whl", "archive_info": {}})
    found = {
        entry.name: entry
        for entry in installed(python, ("vllm", "vllm-omni", "vllm-ascend", "torch-npu")).packages
    }
    assert {name: entry.version for name, entry in found.items()} == {
        "vllm": "0.30.0+empty",
        "vllm-ascend": "0.30.0rc2",
        "torch-npu": "2.10.0.post4",
    }
    assert found["vllm"].checkout == f"{tmp_path}/my vllm"
    assert found["vllm"].editable
    assert found["vllm-ascend"].commit == "abc"
    assert not found["vllm-ascend"].editable
    assert found["torch-npu"].checkout is None
    assert found["torch-npu"].folder == str(site)


def test_a_module_in_the_working_folder_is_not_installed(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "here", "vllm", "9.9.9")
    monkeypatch.chdir(tmp_path / "here")
    assert all(entry.version != "9.9.9" for entry in installed(None, ("vllm",)).packages)


def test_the_metadata_of_another_interpreter_is_its_own(tmp_path: Path) -> None:
    package(tmp_path / "other", "vllm", "0.1.0")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/other exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert [entry.version for entry in installed(python, ("vllm",)).packages] == ["0.1.0"]


@pytest.mark.parametrize("body", [None, "#!/bin/sh\necho broken >&2; exit 3\n", "#!/bin/sh\necho hello\n"])
def test_a_python_that_is_none(tmp_path: Path, body: str | None) -> None:
    python = tmp_path / "python"
    if body:
        python.write_text(body)
        python.chmod(0o755)
    with pytest.raises(BadInput, match="could not list its packages"):
        installed(python)


@pytest.mark.parametrize(
    ("path", "text", "version"),
    [
        (
            "x86_64-linux/ascend_toolkit_install.info",
            "package_name=x\nversion=8.3.RC1\narch=x86_64\n",
            "8.3.RC1",
        ),
        (
            "version.cfg",
            "# version: 1.0\nruntime_running_version=[7.1:8.0]\ntoolkit_running_version=[7.8.0.1:8.5.0]\n",
            "8.5.0",
        ),
        ("version.cfg", "nothing here\n", None),
    ],
)
def test_cann_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str, version: str | None
) -> None:
    target = tmp_path / path
    target.parent.mkdir(exist_ok=True)
    target.write_text(text)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert cann_toolkit(os.environ) == ((version, target) if version else None)


def test_no_cann_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_HOME_PATH", f"{tmp_path}{os.sep}none")
    assert cann_toolkit(os.environ) is None
