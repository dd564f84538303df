"""The check for ways through a function that no call takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import ASCEND, make_world, seen

MASKS = "vllm_omni/attention/masks.py"
SHAPING = """
def shaped(mask, mode="wide", name="x"):
    if mode == "full":
        return mask.full()
    elif mode == "wide":
        return mask
    raise ValueError(name)


class Attention:
    def forward_cuda(self, mask):
        return shaped(mask, mode="wide")

    def forward_npu(self, mask):
        return shaped(mask, {given})
"""
THROUGH = """

class Attention:
    def run(self, mask, mode="wide"):
        return shaped(mask, mode=mode)

    def forward_cuda(self, mask):
        return self.run(mask, mode="wide")

    def forward_npu(self, mask):
        return self.run(mask, {given})
"""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('mode="full"', []),
        ('mode="wide"', [("value", "shaped", "mode='full'")]),
        ("name='y'", [("value", "shaped", "mode='full'")]),  # its default is the other
        ("mode=self.mode", []),
        ("**self.options", []),
    ],
)
def test_a_value_that_no_call_gives(tmp_path: Path, given: str, told: list[tuple[str, str, str]]) -> None:
    world = make_world(tmp_path, {MASKS: SHAPING.replace("{given}", given)})
    assert seen(world, "ways") == told


@pytest.mark.parametrize(("given", "told"), [('"full"', []), ('"wide"', ["run"])])
def test_a_value_that_is_handed_on(tmp_path: Path, given: str, told: list[str]) -> None:
    text = SHAPING.partition("\n\nclass")[0] + THROUGH.replace("{given}", given)
    other = "from vllm_omni.attention.masks import shaped\n\nshaped(1, 'full')\nshaped(1, 'wide')\n"
    world = make_world(tmp_path, {MASKS: text, "vllm_omni/attention/others.py": other})
    assert [owner for _, owner, _ in seen(world, "ways")] == told


INSTALLER = """
def adapt(everywhere=False):
    if everywhere:
        from vllm_ascend import patch_platform  # noqa
    else:
        from vllm_ascend import patch_worker  # noqa


class Worker:
    def __init__(self):
        adapt({worker})


class Platform:
    def __init__(self):
        adapt(everywhere=True)
"""
PLATFORM = """
from vllm_ascend.utils import adapt


class Platform:
    def __init__(self):
        adapt(everywhere=True)

    def start(self):
        adapt({given})
"""


@pytest.mark.parametrize(
    ("worker", "given", "told"),
    [
        ("", "", []),
        ("", "everywhere=True", [("import", "start", "adapt: everywhere")]),
        ("", "self.everywhere", []),
        ("True", "everywhere=True", []),  # nor does any other call take that way
    ],
)
def test_imports_on_a_way_that_the_npu_side_does_not_take(
    tmp_path: Path, worker: str, given: str, told: list[tuple[str, str, str]]
) -> None:
    files = {
        "vllm_ascend/utils.py": INSTALLER.replace("{worker}", worker),
        "vllm_ascend/patch_platform.py": "",
        "vllm_ascend/patch_worker.py": "",
        ASCEND: "class NPUModelRunner:\n    pass\n",
        "vllm_omni/platforms/npu/platform.py": PLATFORM.replace("{given}", given),
    }
    assert [
        (kind, owner.rpartition(".")[2], subject)
        for kind, owner, subject in seen(make_world(tmp_path, files), "ways")
    ] == told
