"""The accuracy config: what was served and what came out, in the form that the tree's own test reads."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from npu_upgrade.artifacts.facts import Facts
from npu_upgrade.evidence.runs import mapping
from npu_upgrade.evidence.store import NPU_REAL
from npu_upgrade.job.tree_form import READER

_RESOLVED_ALWAYS = (
    *("tensor_parallel_size", "dtype", "max_model_len", "gpu_memory_utilization"),
    "trust_remote_code",
)
_RESOLVED_WHEN_SET = ("enforce_eager", "enable_expert_parallel", "quantization")
_OPTIONS = frozenset((*_RESOLVED_ALWAYS, *_RESOLVED_WHEN_SET))


@dataclass(frozen=True)
class Consumer:
    """Which keys the tree's own test reads: vllm-ascend moved its serve options into a section, renamed a key
    between releases, and drops what it does not know without a word, so that its source is asked.

    ``section`` holds the serve options, None: the top level does; ``type_key`` names the model type."""

    section: str | None = "serve"
    type_key: str = "model_type"
    options: frozenset[str] = _OPTIONS


def consumer_of(tree: Path) -> Consumer:
    """What ``tree`` reads; the present form of vllm-ascend where the tree has no reader of its own."""
    try:
        module = ast.parse((tree / READER).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return Consumer()
    functions = (one for one in ast.walk(module) if isinstance(one, ast.FunctionDef))
    builder = next((one for one in functions if one.name == "build_model_args"), module)
    texts, forwarded = _texts(module), _texts(builder)
    section = "serve" if "serve" in texts else None
    return Consumer(section, "model_type" if "model_type" in texts else "model", _OPTIONS & forwarded)


def _texts(node: ast.AST) -> set[object]:
    return {
        one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


FOLDER = "tests/e2e/models/configs"
LIST = f"{FOLDER}/accuracy.txt"  # of the configs that are run
_CHAT = ("apply_chat_template", "fewshot_as_multiturn")


def config_text(facts: Facts, consumer: Consumer) -> str | None:
    """The file, or None when there is no accuracy run to take values from."""
    if facts.accuracy is None or facts.source.name is None or facts.num_fewshot is None:
        return None
    if facts.accuracy.label != NPU_REAL:  # it would be held against the values of an NPU
        return None
    accuracy = facts.accuracy.map("accuracy")
    kind = "vllm-vlm" if facts.multimodal else "vllm"  # as lm_eval calls the model
    resolved = facts.accuracy.map("resolved")
    options = {key: resolved.get(key) for key in _RESOLVED_ALWAYS if resolved.get(key) is not None}
    options |= {key: resolved[key] for key in _RESOLVED_WHEN_SET if resolved.get(key)}
    options = {key: value for key, value in options.items() if key in consumer.options}
    parts: list[dict[str, Any]] = [
        {"model_name": facts.source.name, consumer.type_key: kind, "hardware": facts.hardware},
        {consumer.section: options} if consumer.section else options,
        {"tasks": [_task(task) for task in accuracy["tasks"]]},
        {"num_fewshot": facts.num_fewshot} | _run_options(accuracy, facts.multimodal),
    ]
    return "\n".join(
        yaml.safe_dump(part, sort_keys=False, width=1000, allow_unicode=True) for part in parts if part
    )


def _task(task: dict[str, Any]) -> dict[str, Any]:
    metrics = [{"name": str(m["name"]), "value": round(float(m["value"]), 4)} for m in task["metrics"]]
    return {"name": str(task["name"]), "metrics": metrics}


def _run_options(accuracy: dict[str, Any], multimodal: bool) -> dict[str, Any]:
    """How the evaluation asked. What it did not do is written too: the reader takes what is missing for done.

    A multimodal model is asked in chats in any case; older runs do not record its template.
    """
    first = mapping(accuracy["tasks"][0])
    found = {key: first.get(key, accuracy.get(key)) for key in (*_CHAT, "batch_size", "limit")}
    if not multimodal:
        found |= {key: bool(found[key]) for key in _CHAT}
    return {key: value for key, value in found.items() if value is not None}
