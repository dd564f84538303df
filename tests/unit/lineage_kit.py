"""A small vllm-ascend with a history, and a vllm-omni whose runners copy from it.

PYTEST_DONT_REWRITE: the tests import it before pytest takes its fixtures from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from sources_kit import Server, commit, git, sha, wheel, write_tree  # noqa: F401

from known_runners import GPU_WORKER, NPU_WORKER, RUNNERS  # noqa: F401
from npu_upgrade.lineage.downstream import Upstream

UPSTREAM = Upstream("vllm_ascend/worker/model_runner_v1.py", "NPUModelRunner")


def body(name: str, steps: list[str]) -> str:
    """A method that does one thing per step."""
    return "\n".join([f"    def {name}(self, batch):", *(f"        self.{step}(batch)" for step in steps)])


def steps(count: int, **changed: str) -> list[str]:
    """``step_0`` to ``step_<count-1>``, some replaced: ``steps(3, _1="other")``."""
    return [changed.get(f"_{number}", f"step_{number}") for number in range(count)]


def upstream_source(methods: Mapping[str, list[str]], tail: str = "") -> str:
    """The upstream file with these methods."""
    parts = "\n\n".join(body(name, lines) for name, lines in methods.items())
    return f"import torch\n\n\nclass NPUModelRunner:\n{parts}\n{tail}"


def commit_at(folder: Path, date: str, files: Mapping[str, str]) -> str:
    """Commit files on the current branch at a date; make the clone when it is none. Returns the SHA."""
    return commit(folder, files, date=f"{date}T12:00:00Z")


def git_at(folder: Path, date: str, *args: str) -> str:
    return git(folder, *args, date=f"{date}T12:00:00Z")


def upstream_clone(folder: Path, versions: Mapping[str, Mapping[str, list[str]]]) -> dict[str, str]:
    """One commit per date; returns date -> SHA."""
    return {
        date: commit_at(folder, date, {UPSTREAM.path: upstream_source(methods)})
        for date, methods in versions.items()
    }


def omni_files(
    base: str = "", ar: str = "", generation: str = "", top: str = "", own_import: str = ""
) -> dict[str, str]:
    """The three runner files, each with the given methods in its class."""
    head = own_import or "from vllm_ascend.worker.model_runner_v1 import NPUModelRunner\n"
    bodies = {"base": base, "ar": ar, "generation": generation}
    files = {"vllm_omni/__init__.py": ""}
    base = "from vllm_omni.platforms.npu.worker.npu_model_runner import OmniNPUModelRunner\n"
    for runner in RUNNERS:
        bases = "OmniGPUModelRunner, NPUModelRunner" if runner.kind == "base" else "OmniNPUModelRunner"
        text = bodies[runner.kind] or "    pass"
        imports = head if runner.kind == "base" else base
        files[runner.path] = (
            f"{imports}{top * (runner.kind == 'ar')}\n\nclass {runner.class_name}({bases}):\n{text}\n"
        )
    return files


def publish(
    server: Server,
    releases: Mapping[str, tuple[str, str]],
    yanked: tuple[str, ...] = (),
    project: str = "vllm-ascend",
) -> None:
    """An index page of releases: version -> (upload date or "", upstream source)."""
    package = project.replace("-", "_")
    entries = []
    for version, (date, source) in releases.items():
        data = wheel({f"{package}/__init__.py": "", UPSTREAM.path: source}, name=package, version=version)
        name = f"{package}-{version}-py3-none-any.whl"
        server.file(name, data)
        entry = {
            "filename": name,
            "url": f"/files/{name}",
            "hashes": {"sha256": sha(data)},
            "yanked": version in yanked,
        }
        entries.append(entry | ({"upload-time": f"{date}T12:00:00Z", "size": len(data)} if date else {}))
    server.page(project, json.dumps({"files": entries}).encode(), "application/vnd.pypi.simple.v1+json")


def downloads(server: Server) -> set[str]:
    """The versions of which a file was asked for."""
    return {path.split("-")[1] for path in server.paths() if path.startswith("/files/")}
