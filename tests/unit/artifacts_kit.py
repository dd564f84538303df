"""Evidence of a model as the gates leave it, and trees to write deliverables into."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import model_kit
import pytest
from deliver_support import copied, new_folder
from msgspec import structs, to_builtins

from npu_upgrade.checkpoint.analysis import analyse
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.cli import main as cli
from npu_upgrade.evidence.observed import Device, Observed, Process
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.store import Outcome, Store, workspace_store
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.files import write_json
from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.ground.verdict import Verdict

HF_ID = "Qwen/Qwen3-8B"
NAME = "Qwen3-8B"
NOTHING = Observed("")  # in its place nothing is written
CODE = Subject({"vllm": "a" * 64, "vllm_ascend": "b" * 64})
COMMANDS = ["adapt.artifacts", "adapt.deliver"]
NPU = {"kind": "npu", "name": "Ascend 910B3", "count": 1}
FEATURES = [
    {
        "feature": "graph",
        "status": "verified",
        "requested": "",
        "resolved": "cudagraph_mode=FULL_AND_PIECEWISE",
        "evidence": "server.log:1: replay",
        "why": "a replay was logged after a request",
    },
    *(
        {"feature": name, "status": "not applicable", "why": "the model has no experts"}
        for name in ("expert_parallel", "flashcomm1")
    ),
    {"feature": "mtp", "status": "checkpoint missing", "why": "the index names no MTP weights"},
    {"feature": "multimodal", "status": "not applicable", "why": "text only"},
]
ACCURACY = {
    "tasks": [
        {
            "name": "gsm8k",
            "num_fewshot": 5,
            "limit": None,
            "apply_chat_template": False,
            "fewshot_as_multiturn": False,
            "metrics": [
                {"name": "exact_match,strict-match", "value": 0.8312345},
                {"name": "exact_match,flexible-extract", "value": 0.82},
            ],
        }
    ],
    "tool": "lm_eval 0.4.9",
}
LOADS = [
    {"input_len": 1024, "output_len": 128, "concurrency": 16, "requests": 64, "tokens_per_second": 812.5}
    | {"total_per_second": 7312.5, "first_ms": 310.25, "each_ms": 17.5}
]
CAPACITY = [
    {
        "max_model_len": 131072,
        "max_num_seqs": 16,
        "state": "PASS",
        "theoretical_max_model_len": 131072,
        "practical_max_model_len": 131072,
        "kv_cache_tokens": 400000,
        "filled": True,
    }
]


def result(gate: str, label: str, **changes: Any) -> dict[str, Any]:
    """The ``result.json`` of one run."""
    real = label.endswith("real")
    return {
        "schema": "npu-upgrade/serve/1",
        "gate": gate,
        "model": HF_ID,
        "model_name": NAME,
        "architectures": ["Qwen3ForCausalLM"],
        "model_digest": "c" * 64,
        "load_format": "real" if real else "dummy",
        "label": label,
        "mode": "plain",
        "device": NPU if label.startswith("NPU") else {"kind": "cpu", "name": "", "count": 1},
        "work_dir": "/workspace",
        "serve_arguments": ["--max-model-len", "4096", "--max-num-seqs", "16"],
        "environment": {"HCCL_OP_EXPANSION_MODE": "AIV"},
        "resolved": {
            "architecture": "Qwen3ForCausalLM",
            "tensor_parallel_size": 2,
            "dtype": "bfloat16",
            "max_model_len": 4096,
            "max_num_seqs": 16,
            "enforce_eager": False,
            "quantization": None,
            "gpu_memory_utilization": 0.9,
            "enable_expert_parallel": False,
            "trust_remote_code": False,
            "is_multimodal": False,
        },
        "versions": {"vllm": "0.30.0", "vllm-ascend": "0.30.0rc2"},
        "imports": {"vllm": "/site/vllm/__init__.py"},
        "phases": [{"name": "load", "seconds": 12.1}],
        "ready_seconds": 31.0,
        "checks": [
            {"name": "models", "state": "PASS", "why": "200"},
            {
                "name": "chat",
                "state": "PASS",
                "why": "ok",
                "prompt": "Say 'hi' | now",
                "answer": "{{ hi }}\n```",
            },
        ],
        "kv_cache": {"tokens": 12345, "max_concurrency": 3.0},
        "features": [],
        "capacity": [],
        "ladder": [],
        "accuracy": None,
        "reference": {"state": "equal", "why": "", "prompts": 4, "tokens": 64} if real else {"state": "none"},
        "root": None,
        "verdict": "PASS",
        "summary": "it served",
        "started": "2026-11-22T01:00:00Z",
        "seconds": 61.2,
    } | changes


def observed(label: str = "NPU real", **changes: Any) -> Observed:
    """What an engine shows of itself on the device of a label."""
    device = Device(label.split()[0].lower(), "910B3" if label.startswith("NPU") else "", 16 << 30)
    process = Process(7, "worker", device=device, config={"enforce_eager": False})
    pins = {"transformers": "4.57.1", "torch": "2.9.0"}
    shown = Observed(
        "plain", (process,), work_dir="/workspace", versions=pins, required={"transformers": ">=4.56,<5"}
    )
    return structs.replace(shown, **changes)


def analysed(
    workspace: Path, name: str = NAME, config: dict[str, Any] = model_kit.LLAMA, **changes: Any
) -> None:
    """What ``adapt.py analyze`` would leave of a small checkpoint."""
    folder = model_kit.checkpoint(workspace / ".checkpoint", config)
    file = structs.replace(analyse(folder, Sources()).file, model=name, **changes)
    shutil.rmtree(folder)
    file.verdict = file.judge().value
    write_json(workspace / ".npu-upgrade/adapt" / name / "analysis.json", to_builtins(file))


def add(
    workspace: Path,
    gate: str = "serve",
    label: str = "NPU real",
    *,
    code: Subject = CODE,
    shown: Observed | None = None,
    files: dict[str, Any] | None = None,
    command: tuple[str, ...] = (),
    pins: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """Record one run; returns its folder."""
    store: Store = workspace_store(workspace)
    said = result(gate, label, **changes)
    log = workspace / "log"
    log.write_text("INFO replay\nERROR it broke\n", "utf-8")
    run = store.begin(gate, Redactor())
    run.log("server.log", log)
    run.json("result.json", said)
    if shown is not NOTHING:
        run.json("observed.json", to_builtins(shown or observed(label)))
    for name, value in (files or {}).items():
        run.json(name, value)
    outcome = Outcome(
        gate=gate,
        label=label,
        verdict=Verdict(said["verdict"]),
        subject=code,
        pins=pins or {},
        command=["adapt.py", gate, *command],
        started=said["started"],
        seconds=said["seconds"],
        summary=said["summary"],
        root=said["root"],
    )
    store.record(outcome, run)
    return store.runs / run.id


def add_all(workspace: Path, label: str = "NPU real", **changes: Any) -> None:
    """The checkpoint is analysed and every gate passed, the dummy stage first."""
    if (workspace / WORKSPACE_DIR).exists():
        _add_all(workspace, label, changes)
        return
    wanted = repr((label, sorted(changes.items())))
    if wanted not in _recorded:
        _recorded[wanted] = new_folder()
        _add_all(Path(_recorded[wanted].name), label, changes)
    copied(Path(_recorded[wanted].name), workspace)


_recorded: dict[str, tempfile.TemporaryDirectory[str]] = {}


def _add_all(workspace: Path, label: str, changes: Mapping[str, Any]) -> None:
    analysed(workspace, str(changes.get("model", NAME)).rpartition("/")[2])
    add(workspace, "serve", f"{label.split()[0]} dummy", **changes)
    add(workspace, "serve", label, **changes)
    add(workspace, "features", label, features=FEATURES, **changes)
    add(workspace, "capacity", label, capacity=CAPACITY, **changes)
    add(workspace, "performance", label, performance=LOADS, **changes)
    add(workspace, "accuracy", label, accuracy=ACCURACY, **changes)


def mkdocs_tree(folder: Path) -> Path:
    """A small tree in the present form."""
    models = folder / "docs/source/tutorials/models"
    models.mkdir(parents=True)
    (models / "index.md").write_text("# Model Tutorials\n\nTutorials.\n\n- [Other](Other.md)\n", "utf-8")
    (folder / "mkdocs.yml").write_text(
        "site_name: x\nplugins:\n  - macros:\n      on_undefined: keep\nmarkdown_extensions:\n"
        "  - pymdownx.tabbed:\n      alternate_style: true\n"
        "  - e:\n      generator: !!python/name:no.such.thing\n# the pages\nnav:\n  - index.md\n  - Models:\n"
        "      - tutorials/models/index.md\n      - tutorials/models/Other.md\n  - faqs.md\n\n"
        "# ---- more\nextra:\n  a: 1\n",
        "utf-8",
    )
    hooks = folder / "docs/hooks"
    hooks.mkdir()
    (hooks / "nav_titles.py").write_text(
        'TITLES = {\n    "index.md": {"en": "Home", "zh": "首页"},\n'
        '    "tutorials/models/Other.md": {\n        "en": "Other",\n        "zh": "Other",\n    },\n'
        '    "z.md": {"en": "Z", "zh": "Z"},\n}\nSECTIONS = {}\n',
        "utf-8",
    )
    matrix = folder / "docs/source/user_guide/support_matrix"
    matrix.mkdir(parents=True)
    (matrix / "supported_models.md").write_text(
        "# Supported Models\n\n## Text-Only Language Models\n\n### Generative Models\n\n"
        "#### Core Supported Models\n\n"
        '=== "A2/A3"\n\n    | Model | Support | BF16 | W8A8 | Tensor Parallel | Expert Parallel |'
        " Fullgraph AclGraph |"
        " max-model-len | Doc |\n    |---|---|---|---|---|---|---|---|---|\n"
        "    | Other | ✅ | ✅ | | | | | | [Other](../../tutorials/models/Other.md) |\n\n"
        "### Pooling Models\n\n| Model | Doc |\n|---|---|\n| Bert | |\n",
        "utf-8",
    )
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON of one ``adapt.py`` command."""
    capsys.readouterr()
    names = [name for name in COMMANDS if name.endswith(arguments[0])]
    code = cli.main("adapt.py", "", names, [*arguments[:1], "--format", "json", *arguments[1:]])
    return code, json.loads(capsys.readouterr().out)
