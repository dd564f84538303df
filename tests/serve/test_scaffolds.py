"""Scaffolds as they are written: a real vLLM loads them, and they answer what Transformers answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from adaptation_kit import adapt, private_python

from bench.adapt_checkpoints import make
from bench.gates_cases import SMALL
from bench.walk_repo import write_texts
from npu_upgrade.sources.tree import open_source

VLLM, ASCEND = "pypi:vllm==0.30.0", "pypi:vllm-ascend==0.30.0rc2"
# a checkpoint that nobody serves -> the family it computes, and how many ranks are to share it
CASES = {
    "latent-renamed": ("DeepseekV3ForCausalLM", (1,)),
    "hybrid-renamed": ("Qwen3NextForCausalLM", (1,)),
    "multimodal-renamed": ("Blip2ForConditionalGeneration", (1,)),
    "dense-renamed-fp8-block": ("Qwen3ForCausalLM", (1, 2)),  # one head of keys, so that both ranks have it
    "mixture-renamed-fp8-tensor": ("OlmoeForCausalLM", (1, 2)),  # norms over the heads of both ranks
    "mixture-renamed-turned": ("Qwen3MoeForCausalLM", (1,)),
}
# what no shape tells
DECIDED = {"mixture-renamed-turned": ("--decide", "trunk.h.*.moe.experts.gate_up=transposed")}

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        sys.platform != "linux" or os.uname().machine != "x86_64", reason="no vLLM for this CPU"
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with every checkpoint planned; its environment has all the plugins."""
    made = tmp_path_factory.mktemp("scaffolds")
    for name, (family, _) in CASES.items():
        model = make(name, made / "models" / name)
        given = ("--vllm", VLLM, "--ascend", ASCEND, "--scaffold", made / name, *DECIDED.get(name, ()))
        code, plan = adapt(made, "plan", model, *given)
        assert (code, plan["likeness"]["family"], plan["decisions"]) == (0, family, []), plan
    private_python(made / "venv", *(made / name for name in CASES))
    return made


@pytest.mark.parametrize(("name", "ranks"), [(name, ranks) for name in CASES for ranks in CASES[name][1]])
def test_a_scaffold_answers_what_transformers_answers(folder: Path, name: str, ranks: int) -> None:
    options = SMALL if name != "latent-renamed" else [one for one in SMALL if one != "--enforce-eager"]
    code, found = serve(folder, name, *options, "--tensor-parallel-size", str(ranks))
    assert (code, found["reference"]["state"]) == (0, "equal"), found


@pytest.mark.parametrize("name", CASES)
def test_the_unit_test_of_a_scaffold_passes(folder: Path, name: str) -> None:
    (test,) = (folder / name / "tests").glob("test_*.py")
    found = subprocess.run([folder / "venv/bin/python", "-B", test], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_a_scaffold_in_the_tree_of_vllm_ascend_answers_so_too(tmp_path: Path) -> None:
    """Registered by vllm-ascend itself, whose changed tree is what the emulated NPU runs."""
    tree, model = tmp_path / "vllm-ascend", make("dense-renamed", tmp_path / "models" / "dense-renamed")
    release = open_source(ASCEND)
    write_texts(tree, release.list(), release.read)
    given = ("--vllm", VLLM, "--ascend", tree, "--scaffold", tree, "--form", "tree")
    code, plan = adapt(tmp_path, "plan", model, *given)
    assert (code, plan["decisions"]) == (0, []), plan
    options = ("--emulated", "--load-format", "real", "--generations", "1", "--quiet", "1")
    code, found = adapt(tmp_path, "serve", model, *options, "--", *SMALL)
    assert (code, found["reference"]["state"]) == (0, "equal"), found
    assert found["label"] == "emulated dry-run"


def test_a_kernel_of_the_cpu_that_is_wrong_is_told_from_a_wrong_model(folder: Path) -> None:
    code, found = serve(folder, "latent-renamed", *SMALL)
    assert (code, found["reference"]["state"]) == (1, "differs"), found
    assert "serve without --enforce-eager before you look into the model" in found["summary"]


def serve(folder: Path, name: str, *options: str) -> tuple[int, dict[str, Any]]:
    given = ("--python", folder / "venv/bin/python", "--load-format", "real", "--work-dir", folder)
    given += ("--env", "VLLM_CPU_OMP_THREADS_BIND=nobind")  # two ranks on one NUMA node
    quick = ("--generations", "1", "--quiet", "1")
    return adapt(folder, "serve", folder / "models" / name, *given, *quick, "--", *options)
