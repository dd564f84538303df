"""A model's forward gets from our runners what vllm-omni's own give it, by the release's sources."""

import ast
from pathlib import Path

import pytest

import omni_runners
from npu_upgrade.sources.tree import open_source

RELEASE = "pypi:vllm-omni==0.30.0"
RUNNERS = [f"vllm_omni/worker/gpu_{name}.py" for name in ("model_runner", "generation_model_runner")]
CALLS = (Path(omni_runners.__file__).parent / "core" / "model_calls.py").read_text()


def given_by_omni(source: str) -> set[str]:
    """The keys that a runner writes into the forward's arguments."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            name = getattr(target.value, "id", "")
            if name.startswith("model_kwargs") and isinstance(target.slice, ast.Constant):
                found.add(target.slice.value)
    return found


def given_by_us() -> set[str]:
    assigned = next(
        node.value
        for node in ast.parse(CALLS).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "GIVEN"
    )
    return {node.value for node in ast.walk(assigned) if isinstance(node, ast.Constant)}


@pytest.mark.network
def test_a_forward_gets_all_that_vllm_omni_gives_it():
    tree = open_source(RELEASE)
    theirs = set().union(*(given_by_omni(tree.read(path)) for path in RUNNERS))
    assert {"runtime_additional_information", "seq_token_counts"} <= theirs
    assert theirs <= given_by_us()
