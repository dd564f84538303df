"""Overrides for GPUs whose only callers the plugin has replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.audit_kit import ASCEND, BASE, GPU_BASE, VLLM, make_world, seen

RUNNER = """
class GPUModelRunner:
    def initialize_kv_cache(self, config):
        self.initialize_builders(config)

    def initialize_builders(self, config):
        self.builders = [config]
"""
GPU = f"""
from {VLLM[:-3].replace("/", ".")} import GPUModelRunner

class OmniGPUModelRunner(GPUModelRunner):
    def initialize_builders(self, config):
        super().initialize_builders(config)
        self.prefix_cache = Cache(config)
"""
PLUGIN = f"""
from {VLLM[:-3].replace("/", ".")} import GPUModelRunner

class NPUModelRunner(GPUModelRunner):
    def initialize_kv_cache(self, config):
        self.groups = config.groups
"""
NPU = f"""
from {ASCEND[:-3].replace("/", ".")} import NPUModelRunner
from {GPU_BASE[:-3].replace("/", ".")} import OmniGPUModelRunner

class OmniNPUModelRunner(OmniGPUModelRunner, NPUModelRunner):
    def initialize_kv_cache(self, config):
        NPUModelRunner.initialize_kv_cache(self, config)
"""
DONE = "        self.prefix_cache = Cache(config)\n"
FOUND = [("unreached", "NPUARModelRunner", "OmniGPUModelRunner.initialize_builders")]


def test_an_override_whose_caller_the_plugin_replaced_is_found(tmp_path: Path) -> None:
    world = make_world(tmp_path, {VLLM: RUNNER, GPU_BASE: GPU, ASCEND: PLUGIN})
    assert seen(world, "unreached") == FOUND


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (BASE, NPU + DONE),  # done where it replaces the caller
        (BASE, NPU + "        self.initialize_builders(config)\n"),
        (ASCEND, PLUGIN + "        super().initialize_kv_cache(config)\n"),
        (ASCEND, PLUGIN + "\ndef start(runner):\n    runner.initialize_builders(None)\n"),
        (VLLM, RUNNER + "\n    def load(self):\n        self.initialize_builders(None)\n"),
        (GPU_BASE, GPU.replace(DONE, "")),  # it hands all on
    ],
)
def test_what_is_called_or_done_all_the_same_is_no_finding(tmp_path: Path, path: str, text: str) -> None:
    world = make_world(tmp_path, {VLLM: RUNNER, GPU_BASE: GPU, ASCEND: PLUGIN} | {path: text})
    assert seen(world, "unreached") == []


def test_what_is_only_set_to_none_is_not_made(tmp_path: Path) -> None:
    text = NPU.replace(
        "(self, config):\n        NPU", "(self, config):\n        self.prefix_cache = None\n        NPU"
    )
    world = make_world(tmp_path, {VLLM: RUNNER, GPU_BASE: GPU, ASCEND: PLUGIN, BASE: text})
    assert seen(world, "unreached") == FOUND
