"""Overrides whose only callers in vLLM another base has replaced."""

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


STEP = """
class GPUModelRunner:
    def update(self, step):
        self.removed(step)

    def removed(self, step):
        pass
"""
HOOKED = PLUGIN.partition("    def ")[0] + "    def removed(self, step):\n        self.slots.free(step)\n"
OWN = GPU.partition("    def ")[0] + "    def update(self, step):\n        self.states.pop(step)\n"
HANDS_ON = (
    NPU.partition("    def ")[0]
    + "    def update(self, step):\n        OmniGPUModelRunner.update(self, step)\n"
)


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        (BASE, HANDS_ON, True),
        (GPU_BASE, OWN + "        super().update(step)\n", False),
        (GPU_BASE, OWN + "        self.removed(step)\n", False),
        (BASE, HANDS_ON + "        self.removed(step)\n", False),
        (ASCEND, HOOKED + "\n    def update(self, step):\n        self.removed(step)\n", True),
        (ASCEND, PLUGIN, False),  # it has none of its own
        (VLLM, STEP + "\n    def finish(self, step):\n        self.removed(step)\n", False),
    ],
)
def test_a_hook_of_the_plugin_whose_caller_the_downstream_replaced(
    tmp_path: Path, path: str, text: str, found: bool
) -> None:
    files = {VLLM: STEP, GPU_BASE: OWN, ASCEND: HOOKED} | {path: text}
    world = make_world(tmp_path, files)
    told = [one for one in seen(world, "unreached") if one[0] == "unreached-hook"]
    assert told == ([("unreached-hook", "OmniNPUModelRunner", "NPUModelRunner.removed")] if found else [])
