"""Hold the analysis of models against vLLM itself: ``make bench-analyze``.

The configurations of public model families (``tests/fixtures/model_configs``) are read by the analysis and by
vLLM's own ModelConfig, in one process of a real vLLM on this CPU; every property both have must be the same.
The cache per token is compared with what real engines on tiny checkpoints report. An index of 1,000 shards
and each configuration are timed (processor time, which other work on the machine changes least).

A default run has all of it, and so has a whole run, which goes on where it was cut.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from bench.model_facts import derive
from bench.shared import ROOT, Run, begin, options
from npu_upgrade.checkpoint import oracle
from npu_upgrade.checkpoint.analysis import analyse
from npu_upgrade.checkpoint.analysis_file import Properties
from npu_upgrade.checkpoint.config import FACTS
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.gates.vllm_cpu import DEFAULT, cpu_python
from npu_upgrade.ground.errors import UpgradeError, report
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.sources.tree import open_source

FAMILIES = ROOT / "tests" / "fixtures" / "model_configs"
ENGINE = Path(__file__).with_name("analyze_engine.py")
ENGINES = ("dense", "mixture", "latent")
LEAST, SECONDS, INDEX_SECONDS, OFF = 40, 1.0, 3.0, 0.10
SHARDS, PER_SHARD = 1000, 60


def main() -> int:
    """Exit code 1 when a goal is missed, 3 when something outside is missing."""
    parser = options(__doc__)
    parser.add_argument("--only", choices=("configs", "engines", "index"), help="a part of it")
    parser.add_argument(
        "--configs", type=Path, default=FAMILIES, help="folder with YAML files of other families"
    )
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-analyze-") as folder:
            return _run(given, Path(folder), begin("bench-analyze", given, given.only))
    except UpgradeError as error:
        return report(error, as_text=True)


def _run(given: argparse.Namespace, folder: Path, run: Run) -> int:
    missed: list[str] = []
    summary: dict[str, str] = {}
    parts = {"configs": _configs, "index": _index, "engines": _engines}
    for name, part in parts.items():
        if given.only in (None, name):
            wrong, figures = part(folder / name, given, run)
            missed, summary = missed + wrong, summary | figures
    return run.close(summary, missed)


def families(source: Path, folder: Path) -> dict[str, tuple[str, Path]]:
    """Each family's folder, written from the facts: name -> (kind, folder)."""
    found = {}
    for path in sorted(source.glob("*.yaml")):
        for name, one in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            place = folder / name
            place.mkdir(parents=True)
            for file, content in ({"config.json": one["config"]} | one.get("files", {})).items():
                (place / file).write_text(json.dumps(content), encoding="utf-8")
            found[name] = (one["kind"], place)
    return found


def _configs(folder: Path, given: argparse.Namespace, run: Run) -> tuple[list[str], dict[str, str]]:
    """Every family against vLLM; a configuration that vLLM itself refuses is shown and not counted."""
    known = families(given.configs, folder)
    sources = Sources(open_source(f"pypi:vllm=={DEFAULT}"))
    say(f"asking vLLM {DEFAULT} about {len(known)} configurations")
    texts = {place.name: (place / "config.json").read_text("utf-8") for _, place in known.values()}
    places = [place for _, place in known.values()]
    answers = run.result("vLLM's answers", texts, list[dict], oracle.ask, cpu_python(DEFAULT), places)
    rows, missed, equal, judged, slowest = [], [], 0, 0, 0.0
    for (name, (kind, place)), answer in zip(known.items(), answers, strict=True):
        gc.collect()  # of what the families before left, which a command of its own does not have
        begun = time.process_time()
        own = analyse(place, sources).file.properties
        slowest = max(slowest, took := time.process_time() - begun)
        if "error" in answer:
            rows.append((name, kind, "vLLM refuses it: " + _reason(answer["error"]), f"{took:.2f} s"))
            continue
        differs = oracle.differences(own, answer)
        said = ", ".join(f"{one.property} {one.analysis} for {one.vllm}" for one in differs)
        rows.append((name, kind, said or "equal", f"{took:.2f} s"))
        judged, equal = judged + 1, equal + (not differs)
        missed += [f"{name}: {said}"] if differs else []
    print(table(("family", "kind", "against vLLM", "time"), rows), end="\n\n")
    say("deriving the shipped facts again")
    checks = {
        f"{judged} families judged, at least {LEAST} wanted": judged >= LEAST,
        f"{slowest:.2f} s for a family, less than {SECONDS:.0f} s wanted": slowest < SECONDS,
        "torch was imported": "torch" not in sys.modules,
        f"{FACTS.name} is stale: python -m bench.model_facts": FACTS.read_text("utf-8") == derive(),
    }
    missed += [what for what, holds in checks.items() if not holds]
    figures = {
        "vllm": answers[0]["vllm"],
        "families": str(len(known)),
        "judged": str(judged),
        "equal": str(equal),
    }
    return missed, figures | {
        "properties": str(len(Properties.__struct_fields__)),
        "slowest_s": f"{slowest:.2f}",
    }


def _reason(error: str) -> str:
    """The line of a refusal that says why."""
    lines = [
        line.strip() for line in error.splitlines() if "rror" in line and "further information" not in line
    ]
    return (lines[-1] if lines else error).partition(" [type=")[0].removeprefix("Value error, ")[:90]


def _index(folder: Path, given: argparse.Namespace, run: Run) -> tuple[list[str], dict[str, str]]:
    """The time for an index of 1,000 shards, headers and all."""
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "vocab_size": 8}
    config |= {"num_hidden_layers": SHARDS, "num_attention_heads": 2, "intermediate_size": 8}
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}), encoding="utf-8")
    weight_map = {}
    for number in range(SHARDS):
        names = [f"model.layers.{number}.mlp.experts.{item}.up_proj.weight" for item in range(PER_SHARD)]
        file = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        _write_shard(folder / file, names)
        weight_map |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": weight_map}), encoding="utf-8"
    )
    gc.collect()
    begun = time.process_time()
    found = analyse(folder, Sources())
    took = time.process_time() - begun
    print(f"{len(found.weights.shards)} shards with {len(found.weights.tensors)} tensors: {took:.2f} s\n")
    missed = (
        [] if took < INDEX_SECONDS else [f"{took:.2f} s for {SHARDS} shards, {INDEX_SECONDS:.0f} s wanted"]
    )
    errors = [one.what for one in found.file.findings if one.severity == "error"]
    return missed + errors, {"shards": str(SHARDS), "index_s": f"{took:.2f}"}


def _write_shard(path: Path, names: list[str]) -> None:
    header = {
        name: {"dtype": "BF16", "shape": [8, 8], "data_offsets": [128 * place, 128 * (place + 1)]}
        for place, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(128 * len(names)))


def _engines(folder: Path, given: argparse.Namespace, run: Run) -> tuple[list[str], dict[str, str]]:
    """The cache per token against engines that start here."""
    rows, missed, worst, compared = [], [], 0.0, 0
    for name in ENGINES:
        say(f"starting vLLM {DEFAULT} on the tiny {name} model")
        answer = run.result(
            f"engine {name}", {}, dict, _start, folder, name, good=lambda said: "error" not in said
        )
        if "error" in answer:
            rows.append((name, "", "", answer["error"][:90]))
            continue
        own = answer["planned"]
        real = answer["cache_bytes"] / (answer["blocks"] * answer["block_size"])
        worst, compared = max(worst, off := abs(own - real) / real), compared + 1
        rows.append((name, str(own), f"{real:.0f}", f"{100 * off:.1f} % off"))
        missed += [f"{name}: {own} bytes per token planned, {real:.0f} real"] if off > OFF else []
    print(table(("model", "planned bytes per token", "real", ""), rows), end="\n\n")
    missed += [] if compared else ["no engine started here"]
    return missed, {"engines": str(compared), "memory_off": f"{worst:.3f}"}


def _start(folder: Path, name: str) -> dict[str, Any]:
    command = [str(cpu_python(DEFAULT)), "-P", str(ENGINE), str(folder), name]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "emulator")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"error": (done.stderr.strip().splitlines() or ["no answer"])[-1]}
    found = json.loads(lines[-1])
    if "error" in found:
        return found
    planned = analyse(folder / name, Sources()).file.memory[0].cache_bytes_per_token
    return found | {"planned": planned}


if __name__ == "__main__":
    sys.exit(main())
