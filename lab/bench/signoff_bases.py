"""The workspaces that ``bench.signoff`` delivers from: made once by the commands a user types, then copied.

Evidence names whole paths, so a case is played where its workspace was made: the folder is put back first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import gates_faulty_vllm, walk
from bench.gates_cases import SMALL
from bench.gates_omni import stages
from bench.shared import ADAPT, UPGRADE
from bench.walk_repo import begin_repo, git, write_texts
from bench.wrong_weights import make_biased
from npu_upgrade.environments.venvs import find_uv, uv_variables
from npu_upgrade.gates.vllm_cpu import cpu_python, tiny
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.locks import locked
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.tree import open_source

VLLM, ASCEND = "pypi:vllm==0.30.0", "pypi:vllm-ascend==0.30.0rc2"
QUICK = ("--quiet", "1", "--generations", "1")
_TRANSITION = next(one for one in walk.TRANSITIONS if one.id == "0.24-0.26")
_BEFORE = "pypi:vllm-ascend==0.24.0rc1"
_PROJECT = """[project]
name = "reed"
version = "1"
[project.entry-points."vllm.general_plugins"]
reed = "reed_plugin:register"
[tool.setuptools]
packages = ["reed_plugin"]
"""
_REGISTER = '''"""The adapter of a model that goes by Qwen2's name."""


def register():
    from vllm import ModelRegistry

    ModelRegistry.register_model("Qwen2ForCausalLM", "reed_plugin.model:ReedForCausalLM")
'''
_MODEL = '''"""The model itself."""

from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM


class ReedForCausalLM(Qwen2ForCausalLM):
    """Computes what a Qwen2 does."""

    def compute_logits(self, *given, **options):
        return super().compute_logits(*given, **options)
'''
PLUGIN = {
    "reed/pyproject.toml": _PROJECT,
    "reed/reed_plugin/__init__.py": _REGISTER,
    "reed/reed_plugin/model.py": _MODEL,
}


@dataclass(frozen=True)
class Answer:
    """What a command ended with; ``words``: all that it says to people."""

    code: int
    data: dict[str, Any]

    @property
    def words(self) -> str:
        return " ".join(" ".join(str(self.data.get(key) or "") for key in _SAID).split())


_SAID = ("error", "expected", "try", "summary", "message", "text", "left")


@dataclass(frozen=True)
class Place:
    """A workspace. ``model``: the folder that is adapted, None in an upgrade; ``start``: where commands
    start, when that is not the workspace."""

    workspace: Path
    repo: Path
    model: Path | None = None
    plugin: bool = False
    start: Path | None = None

    @property
    def python(self) -> Path:
        return self.workspace / "venv/bin/python" if self.plugin else cpu_python()

    def call(self, name: str, *words: object, variables: Mapping[str, str] | None = None) -> Answer:
        """One command as a process of its own, in the workspace."""
        split = words.index("--") if "--" in words else len(words)
        at = ["--workspace", self.workspace] if self.start else []
        given = [name, *words[:split], *at, "--format", "json", *words[split:]]
        command = [sys.executable, str(ADAPT if self.model else UPGRADE), *map(str, given)]
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            command, cwd=self.start or self.workspace, env=kept | dict(variables or {}), stdin=-3,
            capture_output=True, text=True,
        )  # fmt: skip
        try:
            return Answer(done.returncode, json.loads(done.stdout))
        except ValueError:
            return Answer(-1, {"error": f"no JSON: {done.stdout[-300:]} {done.stderr[-300:]}"})

    def serve(self, weights: str = "real", *words: object, fault: str = "", **variables: str) -> Answer:
        """The serve gate on a CPU; ``words`` may hold options of vLLM behind --."""
        split = words.index("--") if "--" in words else len(words)
        own = ["--load-format", weights, "--python", self.python, "--work-dir", self.workspace, *QUICK]
        if fault:
            shutil.rmtree(folder := self.workspace / "fault", ignore_errors=True)
            folder.mkdir()
            variables["PYTHONPATH"] = str(gates_faulty_vllm.folder(folder))
            own += ["--keep-pythonpath", "--env", f"BENCH_FAULT={fault}"]
        model = self.model or tiny("dense")
        return self.call(
            "serve", model, *own, *words[:split], "--", *SMALL, *words[split + 1 :], variables=variables
        )

    def omni(self, *words: object, shadow: bool = False, weights: str = "dummy", old: bool = False) -> Answer:
        """The serve gate on two tiny stages on the emulated NPU; ``shadow``: a wheel before the checkout,
        ``old``: the pair before the upgrade, in place of the checkout."""
        shutil.rmtree(folder := self.workspace / "stages", ignore_errors=True)
        folder.mkdir()
        ascend = _BEFORE if old else f"pypi:vllm-ascend=={_TRANSITION.ascend}"
        omni = f"pypi:vllm-omni=={_TRANSITION.omni if old else _TRANSITION.gpu}"
        to = stages(folder, omni, ascend)
        variables = dict(to.environment)
        path = variables.pop("PYTHONPATH")
        extra = [part for name, value in variables.items() for part in ("--env", f"{name}={value}")]
        if old:  # said, since it is not what the job is about
            released = next(one for one in path.split(os.pathsep) if Path(one, "vllm_omni").is_dir())
            extra += ["--expect-import", f"vllm_omni={released}"]
        order = path if shadow or old else os.pathsep.join([str(self.repo), path])
        own = ("--python", to.python, "--load-format", weights, "--keep-pythonpath", "--work-dir", folder)
        return self.call(
            "serve", to.model, *own, *QUICK, *extra, *words, "--", *to.arguments,
            variables={"PYTHONPATH": order},
        )  # fmt: skip

    def artifacts(self, *words: object) -> Answer:
        assert self.model
        given = words or ("--unpublished", f"models/{self.model.name}")
        return self.call("artifacts", self.model, "--tree", self.repo, *given)

    def deliver(
        self,
        *words: object,
        opened: list[str] | None = None,
        model: object = None,
        written: tuple[object, ...] = (),
        after: Callable[[], object] = dict,
    ) -> Answer:
        """The delivery. A model's documents are first ``written`` anew, with these options; ``after`` that
        something may happen, and whatever is a gap is ``opened``."""
        if self.model is None:
            return self.call("deliver", "--repo", self.repo, *words)
        documents = self.artifacts(*written)
        if documents.code:
            return documents
        after()
        gaps = [gap["id"] for gap in documents.data["gaps"]] if opened is None else opened
        given = [word for gap in gaps for word in ("--open", gap)]
        given += ["--include", "reed"] if self.plugin else []
        return self.call("deliver", model or self.model, "--repo", self.repo, "--pending-npu", *given, *words)

    def status(self) -> Answer:
        return self.call("status", *([self.model] if self.model else []))


def make(base: str, folder: Path) -> Place:
    """The workspace called ``base`` in ``folder``, ready to deliver, as it was made or anew."""
    place = _place(base, folder)
    made = folder.with_name(f"{folder.name}.made")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not made.is_dir():
            say(f"making the workspace {base}")
            shutil.rmtree(folder, ignore_errors=True)
            _MAKERS[base](place)
            folder.rename(made)
    return place


def put_back(place: Place) -> None:
    """The workspace as it was made."""
    shutil.rmtree(place.workspace, ignore_errors=True)
    made = place.workspace.with_name(f"{place.workspace.name}.made")
    subprocess.run(["cp", "-a", str(made), str(place.workspace)], check=True)


def _place(base: str, folder: Path) -> Place:
    if base == "upgrade":
        return Place(folder, folder)
    name = "Reed-1M" if base == "reed" else "Looker-1M"
    return Place(folder, folder / "vllm-ascend", folder / name, plugin=base == "reed")


def _adapt(place: Place) -> None:
    """A checkpoint analysed, planned, served with dummy and real weights, and written about."""
    assert place.model
    _ascend(place.repo)
    if place.plugin:
        make_biased(place.model)
        for name, text in PLUGIN.items():
            (place.repo / name).parent.mkdir(parents=True, exist_ok=True)
            (place.repo / name).write_text(text, "utf-8")
        _install(place)
    else:
        shutil.copytree(tiny("looker"), place.model)
    _good(place.call("analyze", place.model, "--vllm", VLLM, "--ascend", ASCEND, "--python", place.python))
    _good(place.call("plan", place.model, "--vllm", VLLM, "--ascend", ASCEND, "--delivery", place.repo))
    _good(place.serve("dummy"))
    _good(place.serve())
    _good(place.artifacts())


def _install(place: Place) -> None:
    """An environment of its own over that of the CPU's vLLM, with the plugin as one edits it."""
    uv, venv = find_uv(), place.workspace / "venv"
    subprocess.run([uv, "venv", "-q", "--python", cpu_python(), venv], check=True, env=uv_variables())
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    theirs, own = (
        subprocess.run([one, "-c", ask], check=True, stdout=-1, text=True).stdout.strip()
        for one in (cpu_python(), place.python)
    )
    (Path(own) / "shared.pth").write_text(f"{theirs}\n", "utf-8")
    install = [uv, "pip", "install", "-q", "--python", place.python, "--no-deps", "-e", place.repo / "reed"]
    subprocess.run(install, check=True, env=uv_variables())


def _ascend(repo: Path) -> None:
    """What of vllm-ascend's release a delivery touches, on a branch of its own."""
    begin_repo(repo)
    tree, wanted = open_source(ASCEND), ("docs/", "tests/e2e/models/", "mkdocs.yml", ".gitignore")
    write_texts(repo, [path for path in tree.list() if path.startswith(wanted)], tree.read)
    with (repo / ".gitignore").open("a") as stream:
        stream.write("*.egg-info/\n__pycache__/\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "Start")
    git(repo, "switch", "-q", "-c", "adapt")


def _upgrade(place: Place) -> None:
    """A walk to the delivery, without the emulated run as a gate; then both stages, served with the job."""
    done = walk.walk(_TRANSITION, place.repo, "skip", prove=False, deliver=False)
    if not done.good:
        raise Blocked(f"the walk stopped: {done.problems}", expected="a delivery", try_="make bench-walk")
    (place.repo / ".git/info/exclude").write_text("stages/\nfault/\n", "utf-8")
    served = place.omni()
    _good(served)
    if not served.data.get("job"):
        raise Blocked("the run is of no job", expected="a run of the upgrade", try_="look at the workspace")


def _good(answer: Answer) -> None:
    if answer.code:
        raise Blocked(answer.words, expected="a workspace that can be delivered", try_="the command alone")


_MAKERS: dict[str, Callable[[Place], None]] = {"reed": _adapt, "looker": _adapt, "upgrade": _upgrade}
