"""lm_eval against a running server: which interpreter has it, how it is called, what it says.

The evaluation runs in a process of its own; this project neither imports lm_eval nor brings tasks along.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.gates.accuracy.config_file import Task, by_name, compare
from npu_upgrade.gates.serving.checks import Check, failed, passed
from npu_upgrade.gates.serving.launch import Launch, given
from npu_upgrade.gates.serving.measuring import measure
from npu_upgrade.gates.serving.requests import Client, without_proxy
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.files import read_object, sha256
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.installed import Installed

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LOG, RESULTS = "lm_eval.log", "lm_eval-results.json"
_VERSION = "import importlib.metadata as m; print(m.version('lm-eval'))"
_LOAD = """
import sys
from lm_eval.tasks import TaskManager, get_task_dict
names, include = sys.argv[1].split(","), sys.argv[2:]
get_task_dict(names, TaskManager(include_path=include[0] if include else None))
"""
_LOADING = 600.0  # seconds
_SHORT = ("num_fewshot", "limit", "batch_size")


@dataclass(frozen=True)
class Evaluation:
    """What is asked. ``tokenizer``: the model's folder or id. ``include``: a folder with tasks of one's own.

    ``run``: num_fewshot, limit, batch_size, apply_chat_template, fewshot_as_multiturn, where given.
    """

    python: Path
    version: str
    tasks: Sequence[str]
    tokenizer: str
    run: Mapping[str, Any] = field(default_factory=dict)
    include: Path | None = None
    chat: bool = False
    thinking: bool | None = None
    concurrent: int = 8

    @property
    def asks_chats(self) -> bool:
        """Whether the server applies its chat template; a multimodal model is asked in chats in any case."""
        return self.chat or bool(self.run.get("apply_chat_template"))

    def command(self, url: str, name: str, output: Path) -> list[str]:
        """The command line; ``name`` is the served name, ``output`` a folder for the results."""
        chat = self.asks_chats
        model = {
            "model": name,
            "base_url": url + (CHAT if chat else COMPLETIONS),
            "num_concurrent": self.concurrent,
            "tokenized_requests": False,
            "tokenizer_backend": None if chat else "huggingface",
            "tokenizer": self.tokenizer,
        }
        arguments = ",".join(f"{key}={value}" for key, value in model.items())
        found = [str(self.python), "-m", "lm_eval"]  # releases before 0.4.10 know no "run"
        found += ["--model", "local-chat-completions" if chat else "local-completions"]
        found += ["--model_args", arguments, "--output_path", str(output), "--tasks", ",".join(self.tasks)]
        for key in _SHORT:
            if self.run.get(key) is not None:
                found += [f"--{key}", str(self.run[key])]
        found += ["--apply_chat_template"] if chat else []
        found += ["--fewshot_as_multiturn"] if self.run.get("fewshot_as_multiturn") else []
        if self.thinking is not None:
            asked = {"chat_template_kwargs": {"enable_thinking": self.thinking}}
            found += ["--gen_kwargs", json.dumps(asked)]
        return found + (["--include_path", str(self.include)] if self.include else [])

    def described(self, tasks: Sequence[Mapping[str, Any]], launch: Launch) -> dict[str, Any]:
        """What was measured, with the tool, the way it asked, and the chat template that was used."""
        run = {key: value for key, value in self.run.items() if key not in ("num_fewshot", "limit")}
        if self.asks_chats:
            used = template(Path(launch.model), launch.arguments, launch.cwd)
            run |= {"apply_chat_template": True, "chat_template": used}
        return {"tool": f"lm_eval {self.version}", "tasks": tasks, **run}


def find(asked: Path | None, serving: Path, installed: Installed) -> tuple[Path, str]:
    """The interpreter with lm_eval and its version: the one asked for, else the serving one.

    Raises :class:`Blocked` when it has none.
    """
    python = asked or serving
    if asked is None and "lm-eval" in installed.versions:
        return serving, installed.versions["lm-eval"]
    try:
        done = subprocess.run([str(python), "-P", "-c", _VERSION], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        done = None
    if done is None or done.returncode != 0:
        raise Blocked(
            f"{python} has no lm_eval",
            expected="lm_eval, which measures accuracy, in the serving Python or in another one",
            try_=f"{python} -m pip install 'lm-eval[api]', or --lm-eval PYTHON, or --lm-eval own",
        )
    return python, done.stdout.strip()


def check_tasks(evaluation: Evaluation) -> None:
    """Load the questions before anything is served; they stay in the cache of the datasets.

    Raises :class:`Blocked` when they are neither there nor can be fetched.
    """
    include = [str(evaluation.include)] if evaluation.include else []
    command = [str(evaluation.python), "-P", "-c", _LOAD, ",".join(evaluation.tasks), *include]
    say(f"loading the questions of {', '.join(evaluation.tasks)}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LOADING)
        said = (done.stderr.strip().splitlines() or ["no word"])[-1] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    if said:
        raise Blocked(
            f"the questions of {', '.join(evaluation.tasks)} cannot be loaded: {said[:300]}",
            expected="tasks that this lm_eval knows, their datasets in the cache or a network to fetch them",
            try_="HF_ENDPOINT for a mirror, HF_HOME for a cache that has them, or --include-path",
        )


def measuring(
    evaluation: Evaluation, folder: Path, seconds: float, wanted: Sequence[Task], tasks: list[dict[str, Any]]
) -> Callable[[Client, str], list[Check]]:
    """What the gate asks besides: the evaluation, its values held against ``wanted``; fills ``tasks``."""

    def measure(client: Client, name: str) -> list[Check]:
        say(f"lm_eval {evaluation.version}: {', '.join(evaluation.tasks)}")
        results, why = evaluate(evaluation, client.url, name, folder, seconds, client.broken)
        if results is None:
            return [failed("accuracy", f"nothing was measured: {why}")]
        found = tasks_of(results, evaluation)
        if empty := [one["name"] for one in found if not one["metrics"]]:
            return [failed("accuracy", f"lm_eval gave no value for {', '.join(empty)}")]
        tasks.extend(found)
        return [passed("accuracy", why=values_text(found)), *compare(wanted, by_name(found))]

    return measure


def values_text(tasks: Sequence[Mapping[str, Any]]) -> str:
    """The measured values in one line."""
    return ", ".join(
        f"{task['name']} {one['name']} {one['value']:.4f}" for task in tasks for one in task["metrics"]
    )


def evaluate(
    evaluation: Evaluation, url: str, name: str, folder: Path, seconds: float, broken: Callable[[], str]
) -> tuple[dict[str, Any] | None, str]:
    """lm_eval's results as its file holds them, or None and why there are none.

    Its output goes to ``folder``/lm_eval.log. It is ended when the server breaks or ``seconds`` are over.
    """
    variables = without_proxy(os.environ) | {"OPENAI_API_KEY": "none", "TOKENIZERS_PARALLELISM": "false"}
    variables.pop("PYTHONPATH", None)
    command, cwd = evaluation.command(url, name, folder / "lm_eval"), evaluation.include or folder
    why = measure(command, folder / LOG, variables=variables, cwd=cwd, seconds=seconds, broken=broken)
    results = files_of(folder).get(RESULTS)
    if why or results is None:
        return None, f"lm_eval: {why or 'it left no results'} (--evaluation-seconds {seconds:.0f})"
    return json.loads(results.read_text("utf-8")), ""


def files_of(folder: Path) -> dict[str, Path]:
    """What an evaluation left in ``folder``, by the names it has as evidence."""
    log, results = folder / LOG, sorted((folder / "lm_eval").rglob("results_*.json"))
    return ({LOG: log} if log.exists() else {}) | ({RESULTS: results[-1]} if results else {})


def tasks_of(results: Mapping[str, Any], evaluation: Evaluation) -> list[dict[str, Any]]:
    """The tasks with their metrics, without standard errors: name, num_fewshot, limit, metrics."""
    shots = results.get("n-shot") or {}
    found = []
    for name in evaluation.tasks:
        values = (results.get("results") or {}).get(name) or (results.get("groups") or {}).get(name) or {}
        metrics = [
            {"name": key, "value": value}
            for key, value in values.items()
            if isinstance(value, int | float) and "," in key and "_stderr" not in key and math.isfinite(value)
        ]
        shot, limit = shots.get(name, evaluation.run.get("num_fewshot")), evaluation.run.get("limit")
        found.append({"name": name, "num_fewshot": shot, "limit": limit, "metrics": metrics})
    return found


_OPTION = "--chat-template"
NONE = "none in the checkpoint: vLLM's own for this architecture, where it has one"


def template(model: Path, arguments: Sequence[str], cwd: Path) -> dict[str, Any]:
    """``from``: where the server takes it from; ``sha256`` of its text, None where that is not known here.

    ``arguments`` are those of vllm serve, started in ``cwd``; they may name another than the checkpoint's.
    """
    if named := next(iter(given(arguments, _OPTION)), ""):
        path = cwd / named
        text = path.read_text("utf-8", "replace") if path.is_file() else named
        return {"from": f"{_OPTION} {named if path.is_file() else 'as text'}", "sha256": sha256(text)}
    for name, text in _of_checkpoint(model):
        if text:
            return {"from": name, "sha256": sha256(text)}
    if not model.is_dir():
        return {"from": "the model by its id: not looked at", "sha256": None}
    return {"from": NONE, "sha256": None}


def _of_checkpoint(model: Path) -> list[tuple[str, str]]:
    """The places in the order in which Transformers takes them: a processor's before a tokenizer's."""
    whole = model / "chat_template.jinja"
    found = [(whole.name, whole.read_text("utf-8", "replace"))] if whole.is_file() else []
    for name in ("chat_template.json", "processor_config.json", "tokenizer_config.json"):
        value = read_object(model / name).get("chat_template")
        found.append((name, value if isinstance(value, str) else json.dumps(value) if value else ""))
    return found
