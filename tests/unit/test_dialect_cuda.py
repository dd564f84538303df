"""Functions of the GPU side that nothing translates and that need CUDA."""

from __future__ import annotations

from pathlib import Path

from npu_upgrade.lineage.dialect import written_for_cuda
from npu_upgrade.sources.tree import open_source

TEXT = """
import torch

def start(copy_stream):
    torch.cuda.current_stream().wait_stream(copy_stream)

def snap(value):
    return start(value)

def clone(value):
    return value.clone() if value.device.type == "cuda" else value

def flat(value):
    return value if value.is_cuda else None

def may(value):
    return torch.cuda.is_available() and value

def plain(value):
    return value.to("cuda")

class Runner:
    def step(self):
        torch.cuda.synchronize()
"""


def test_functions_that_use_cuda_or_ask_for_it_are_told_with_their_callers(tmp_path: Path) -> None:
    (tmp_path / "runner.py").write_text(TEXT)
    assert written_for_cuda(open_source(f"dir:{tmp_path}"), ["runner.py"]) == {
        "start",
        "snap",
        "clone",
        "flat",
    }
