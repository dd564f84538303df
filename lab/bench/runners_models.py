"""Real models inside vllm-omni, on the emulated NPU: ours against vllm-omni's own runners.

Each cell is a real ``vllm serve --omni`` of a pipeline of the emulator: the release's model code and deploy
file on a tiny checkpoint. The reference is what vllm-omni's own V1 runners answer to the same requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.emulator_pairs import MATCHED
from bench.runners_run import BLOCKED, Result, run_json
from bench.shared import ROOT, Run
from npu_upgrade.gates.emulation.environment import prepare
from npu_upgrade.gates.vllm_cpu import models_folder
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.tree import SourceTree, overlay

HEAD = ("model", "mode", "V1: ours against vllm-omni's", "V2: ours against the same", "how")
EAGER, GRAPH = "eager", "graph"
UNEQUAL = "fail: not equal"
_COMPARE = """
import json, sys, torch
from safetensors.torch import load_file
first, second = (load_file(f"{one}/answers.safetensors") for one in sys.argv[1:])
told, again = (json.load(open(f"{one}/answers.json")) for one in sys.argv[1:])
wrong = [f"{name}: {told[name]} and {again.get(name)}" for name in told if told[name] != again.get(name)]
for name in sorted(first.keys() | second.keys()):
    if name not in first or name not in second:
        wrong.append(f"{name} in one only")
    elif first[name].shape != second[name].shape:
        wrong.append(f"{name}: {tuple(first[name].shape)} and {tuple(second[name].shape)}")
    elif not torch.equal(first[name], second[name]):
        far = (first[name].double() - second[name].double()).abs().max()
        wrong.append(f"{name}: {float(far):.6f} apart")
print(json.dumps({"wrong": wrong, "parts": len(first) + len(told)}))
"""


@dataclass(frozen=True)
class Lag:
    """An expression of a file of vllm-omni's, ``before`` and ``after`` it has what vllm-ascend's own has."""

    path: str
    before: str
    after: str
    what: str

    def corrected(self, tree: SourceTree) -> SourceTree:
        text = tree.read(self.path)
        assert self.before in text, f"{self.path} is another one: {self.before}"
        return overlay(tree, {self.path: text.replace(self.before, self.after)})


@dataclass(frozen=True)
class Model:
    """One row for each mode. ``scenario`` is the emulator's; ``instead`` tells why a column has no run.

    ``lags``: what a copy of vllm-omni's lacks of vllm-ascend's. Where the released one answers otherwise,
    ours are compared with it corrected, too, and the cell says both.
    """

    name: str
    scenario: str = ""
    modes: tuple[str, ...] = (EAGER, GRAPH)
    instead: str = ""
    v2: str = ""
    lags: Lag | None = None


_NO_V2 = "its pipeline declares no native V2 data plane, and the older one was not tried"
_RAW_TOKENS = Lag(
    "vllm_omni/platforms/npu/worker/npu_ar_model_runner.py",
    "self.model_config.is_encoder_decoder and",
    "(self.model_config.is_encoder_decoder or self.model_config.requires_raw_input_tokens) and",
    "the prefill of pictures and sound is compiled for a model that takes raw tokens"
    " (npu_ar_model_runner.py:637; vllm-ascend's model_runner_v1.py:2543 leaves it out)",
)
MODELS = (
    Model("Qwen3-TTS", "qwen3-tts"),
    Model("Qwen3-Omni", "qwen3-omni", v2=_NO_V2),
    Model("Qwen2.5-Omni", "qwen2.5-omni", v2=_NO_V2),
    Model("MiniCPM-o 4.5", "minicpm-o", v2=_NO_V2, lags=_RAW_TOKENS),
    Model("Fish Speech", "fish-speech", v2=_NO_V2),
    Model("HunyuanImage3, AR stage", "hunyuan-image3"),
    Model("each of them on a GPU", instead="BLOCKED: needs a GPU and vLLM's wheel"),
)
DEFAULT = ("Qwen3-TTS eager",)


def rows(run: Run, words: Sequence[str]) -> tuple[list[tuple[str, ...]], list[str]]:
    """The table, and what failed; a default run has one model in one mode."""
    found, failed = [], []
    for model in MODELS:
        if model.instead:
            found.append((model.name, "", model.instead, model.instead, "not run"))
            continue
        for mode in model.modes:
            label = f"{model.name} {mode}"
            if not all(word in label.split() for word in words):
                continue
            if run.kind == "default" and label not in DEFAULT:
                found.append((model.name, mode, "not in a default run", "not in a default run", "not run"))
                continue
            results = run.result(label, [], list[Result], play, model, mode, good=_good)
            found.append((model.name, mode, *(one.state for one in results), "emulated dry-run"))
            failed += [f"{label}: {one.state}: {one.why}" for one in results if one.state.startswith("fail")]
    return found, failed


def _good(results: list[Result]) -> bool:
    return not any(one.state.startswith(("fail", BLOCKED)) for one in results)


def play(model: Model, mode: str) -> list[Result]:
    """V1's result and V2's."""
    with tempfile.TemporaryDirectory(prefix="bench-runners-") as scratch:
        try:
            own = _answers(model, mode, "", Path(scratch) / "own")
        except UpgradeError as error:
            return [Result(BLOCKED, error.what)] * 2
        except RuntimeError as error:
            why = f"vllm-omni itself does not run it: {_last(error)}"
            return [Result(why)] * 2
        first = _compared(model, mode, "v1", own, Path(scratch) / "v1")
        if first.state == UNEQUAL and model.lags:
            first = _with_correction(model, model.lags, mode, Path(scratch), first)
        return [
            first,
            Result(f"not run: {model.v2}")
            if model.v2
            else _compared(model, mode, "v2", own, Path(scratch) / "v2"),
        ]


def _with_correction(model: Model, lag: Lag, mode: str, scratch: Path, first: Result) -> Result:
    """What ours are beside vllm-omni's own with its copy corrected."""
    say(f"{model.name} {mode}, vllm-omni's own with what its copy lacks")
    try:
        own = _answers(model, mode, "", scratch / "corrected", lag)
    except RuntimeError as error:
        return Result(first.state, f"{first.why}; corrected, the server: {str(error)[-500:]}")
    found = _difference(own, scratch / "v1")
    if found["wrong"]:
        return Result(first.state, f"{first.why}; corrected: {'; '.join(found['wrong'])}"[:1500])
    return Result(f"equal in {found['parts']} parts to vllm-omni's corrected: in the released one {lag.what}")


def _compared(model: Model, mode: str, runner: str, own: Path, out: Path) -> Result:
    say(f"{model.name} {mode}, ours on {runner}")
    try:
        _answers(model, mode, runner, out)
    except RuntimeError as error:
        return Result("fail: the server", str(error)[-1500:])
    found = _difference(own, out)
    if found["wrong"]:
        return Result(UNEQUAL, "; ".join(found["wrong"])[:1500])
    return Result(f"equal in {found['parts']} parts")


def _difference(own: Path, out: Path) -> dict[str, Any]:
    """How the answers in two folders differ (``wrong``), and how many there are (``parts``)."""
    ended = subprocess.run(
        [str(_environment().python), "-c", _COMPARE, str(own), str(out)],
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ended.stdout)


def _answers(model: Model, mode: str, runner: str, out: Path, lag: Lag | None = None) -> Path:
    """The folder with what a server answered; ``runner`` is "" for vllm-omni's own. Raises RuntimeError."""
    out.mkdir()
    environment = _environment(lag)
    variables = dict(environment.variables) | {"OMNI_RUNNERS": runner}
    variables.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    variables["PYTHONPATH"] = os.pathsep.join([str(_installed(out)), variables["PYTHONPATH"]])
    if runner == "v2":
        variables["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    plan = {
        "scenario": model.scenario,
        "models": str(models_folder()),
        "out": str(out),
        "runner": runner or "v1",
        "eager": mode == EAGER,
    }
    told = run_json(environment.python, ["-P", "-m", "runner_checks.pipeline", json.dumps(plan)], variables)
    ours = "omni_stages." in told["runner"]
    if ours != bool(runner) or (runner and ("V2" in told["runner"]) != (runner == "v2")):
        raise RuntimeError(f"another runner than asked for ran: {told['runner']}")
    if mode == GRAPH and not told["replayed"]:
        raise RuntimeError("no graph was replayed")
    return out


def _environment(lag: Lag | None = None) -> Any:
    triple = MATCHED[-1].triple()
    omni = lag.corrected(triple.omni) if lag and triple.omni else triple.omni
    return prepare(omni, triple.ascend, triple.vllm)


def _installed(out: Path) -> Path:
    """A folder for PYTHONPATH with the metadata that an installed package would have."""
    project = tomllib.loads((ROOT / "runners/pyproject.toml").read_text("utf-8"))["project"]
    info = out / f"site/omni_runners-{project['version']}.dist-info"
    info.mkdir(parents=True)
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(about, "utf-8")
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in points.items())
        for group, points in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("".join(groups), "utf-8")
    return info.parent


def _last(error: RuntimeError) -> str:
    lines = [line for line in str(error).splitlines() if "Error" in line]
    return (lines[-1] if lines else str(error)[-200:])[-200:]
