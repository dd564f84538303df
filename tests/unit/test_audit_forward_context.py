"""The check for the rules on forward contexts, graph wrappers and buffers."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest
from audit_kit import ASCEND, BASE, GPU_BASE, VLLM, findings, make_world, seen
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.audit.checks.forward_context import calls_on_self

RUNNER = """
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner
    from vllm_ascend.contexts import set_ascend_forward_context
    from vllm_ascend.graphs import ACLGraphWrapper

    class NPUModelRunner(GPUModelRunner):
        def __init__(self):
            self.ids = self._make_buffer(8, dtype=int)

        def run(self, batch):
            self.prepare_forward(batch)
            with set_ascend_forward_context(batch, self.config, tokens=8, heat=self.heat):
                return self._model_forward(batch, self.model(batch))

        def load(self):
            self.model = ACLGraphWrapper(self.model, self.config)
"""
TREES = {
    ASCEND: RUNNER,
    "vllm/contexts.py": "def set_forward_context(batch, config, tokens=0):\n    pass\n",
    "vllm/graphs.py": "class CUDAGraphWrapper:\n    pass\n",
    "vllm_ascend/contexts.py": "def set_ascend_forward_context(batch, config, tokens, heat):\n    pass\n",
    "vllm_ascend/graphs.py": """
        class ACLGraphWrapper:
            def __init__(self, runnable, config, mode=None):
                pass
    """,
}
NPU_RUNNER = """
    from vllm.contexts import set_forward_context
    from vllm.graphs import CUDAGraphWrapper
    from vllm_ascend.contexts import set_ascend_forward_context
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner
    from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner

    class OmniNPUModelRunner(OmniGPUModelRunner, NPUModelRunner):
"""
PLATFORM = """
    class NPUOmniPlatform:
        @classmethod
        def get_wrapper(cls):
            from vllm_ascend.graphs import ACLGraphWrapper

            return ACLGraphWrapper

        @classmethod
        def enter(cls, batch, *, mode):
            return None
"""


def world_with(folder: Path, body: str, more: Mapping[str, str] | None = None):
    text = dedent(NPU_RUNNER) + "".join(f"    {line}\n" for line in dedent(body).strip("\n").split("\n"))
    return make_world(folder, TREES | {BASE: text} | dict(more or {}))


def kinds(folder: Path, body: str) -> list[tuple[str, str, str]]:
    return seen(world_with(folder, body), "forward-context")


def test_a_copy_that_does_all_as_vllm_ascend_does(tmp_path: Path) -> None:
    body = """
        def __init__(self):
            self.ids = self._make_buffer(16, dtype=int)

        def run(self, batch):
            with self.profile(), set_ascend_forward_context(batch, self.config, heat=1, tokens=1, more=2):
                x = self.model(batch)
                return self._model_forward(batch, x)
    """
    assert kinds(tmp_path, body) == []


def test_an_argument_of_the_context_that_the_copy_lacks(tmp_path: Path) -> None:
    body = """
        def run(self, batch):
            with set_ascend_forward_context(batch, self.config, tokens=1):
                return self._model_forward(batch, self.model(batch))
    """
    (found,) = findings(world_with(tmp_path, body), "forward-context")
    assert (found.kind, found.owner, found.subject) == ("context-argument", "OmniNPUModelRunner", "run: heat")
    assert found.there
    assert found.there.text == "heat=self.heat"
    assert kinds(tmp_path / "b", body.replace("tokens=1", "**given")) == []


def test_a_forward_outside_the_context(tmp_path: Path) -> None:
    body = """
        def run(self, batch):
            with set_ascend_forward_context(batch, self.config, tokens=1, heat=2):
                x = self.model(batch)
            return self._model_forward(batch, x)
    """
    assert kinds(tmp_path, body) == [("no-context", "OmniNPUModelRunner", "run: _model_forward")]


def test_vllms_own_context_and_wrapper(tmp_path: Path) -> None:
    body = """
        def step(self, batch) -> CUDAGraphWrapper:
            with set_forward_context(batch, self.config):
                return self.model(batch)

        def load(self):
            self.talker = CUDAGraphWrapper(self.talker)
            self.plain = CUDAGraphWrapper.plain
    """
    assert kinds(tmp_path, body) == [
        ("upstream-name", "OmniNPUModelRunner", "set_forward_context"),
        ("upstream-name", "OmniNPUModelRunner", "CUDAGraphWrapper"),
    ]


def test_a_wrapper_of_vllm_that_is_asked_for_or_imported_where_it_is_used(tmp_path: Path) -> None:
    body = """
        def step(self, batch):
            if isinstance(self.talker, CUDAGraphWrapper):
                return self.talker(batch)
            from vllm.contexts import set_forward_context as entered

            with entered(batch, self.config):
                return self.model(batch)
    """
    assert kinds(tmp_path, body) == [
        ("upstream-name", "OmniNPUModelRunner", "CUDAGraphWrapper"),
        ("upstream-name", "OmniNPUModelRunner", "set_forward_context"),
    ]


def test_a_wrapper_is_made_with_what_it_takes(tmp_path: Path) -> None:
    body = """
        def load(self):
            from vllm_ascend.graphs import ACLGraphWrapper

            self.talker = ACLGraphWrapper(self.talker, runtime_mode=1)
            self.decoder = ACLGraphWrapper(self.decoder, self.config, mode=1)
    """
    assert seen(world_with(tmp_path, body), "calls") == [
        ("constructor", "OmniNPUModelRunner.load", "ACLGraphWrapper: has no parameter runtime_mode")
    ]


def test_a_name_that_vllm_ascends_runner_takes_from_vllm_too(tmp_path: Path) -> None:
    body = "def step(self, batch):\n    return set_forward_context(batch, self.config)\n"
    runner = "from vllm.contexts import set_forward_context\n" + dedent(RUNNER).lstrip()
    assert seen(world_with(tmp_path, body, {ASCEND: runner}), "forward-context") == []
    assert kinds(tmp_path / "b", body) == [("upstream-name", "OmniNPUModelRunner", "set_forward_context")]


@pytest.mark.parametrize("change", ["numpy=False, dtype=int", "8, 8, dtype=int", "8, dtype=float"])
def test_a_buffer_in_another_form(tmp_path: Path, change: str) -> None:
    call = change if change[0].isdigit() else f"8, {change}"
    body = f"def __init__(self):\n    self.ids = self._make_buffer({call})\n"
    assert kinds(tmp_path, body) == [("buffer", "OmniNPUModelRunner", "ids")]


def test_a_buffer_that_vllm_makes_in_another_form(tmp_path: Path) -> None:
    body = """
        def __init__(self):
            self.far = self._make_buffer(9, numpy=True)
            self.own = self._make_buffer(1)
    """
    plain = dedent(body).replace("True", "False").replace("self.own", "other").replace("\n", "\n    ")
    plain = f"class GPUModelRunner:\n{plain}"
    assert seen(world_with(tmp_path, body, {VLLM: plain}), "forward-context") == [
        ("buffer", "OmniNPUModelRunner", "far")
    ]


def test_calls_that_go_through_the_platform(tmp_path: Path) -> None:
    gpu = """
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner
        from vllm_omni.platforms import current_omni_platform

        class OmniGPUModelRunner(GPUModelRunner):
            def load_talker(self):
                wrapper = current_omni_platform.get_wrapper()
                self.talker = wrapper(self.talker, self.config, runtime=1)

            def talk(self, batch):
                with current_omni_platform.enter(batch, mode=1):
                    pass
                with current_omni_platform.enter(batch):
                    pass
    """
    more = {GPU_BASE: gpu, "vllm_omni/platforms/npu/platform.py": PLATFORM}
    assert seen(world_with(tmp_path, "pass", more), "forward-context") == [
        ("platform-call", "OmniGPUModelRunner", "load_talker: ACLGraphWrapper.__init__"),
        ("platform-call", "OmniGPUModelRunner", "talk: NPUOmniPlatform.enter"),
    ]


@given(st.lists(st.booleans(), max_size=6))
def test_every_call_is_inside_or_outside(inside: list[bool]) -> None:
    lines = ["def run(self):"]
    for flag in inside:
        head = "with set_some_forward_context(x) as y:" if flag else "with other(x):"
        lines += [f"    {head}", "        if x:", "            z = [self.model(x)]"]
    lines.append("    pass")
    (method,) = ast.parse("\n".join(lines)).body
    assert isinstance(method, ast.FunctionDef)
    assert [call.inside for call in calls_on_self(method)] == inside
