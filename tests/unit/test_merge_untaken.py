"""Keywords that theirs gives a class whose place another class takes in ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.audit_kit import make_triple

from npu_upgrade.merge.untaken import untaken

RUNNER = "vllm_omni/platforms/npu/worker/npu_ar_model_runner.py"
FILES = {
    "vllm/v1/outputs.py": "class Output:\n    def __init__(self, a, b, c, drafts=None):\n        pass\n",
    "vllm_omni/outputs.py": """from dataclasses import dataclass

@dataclass
class OmniOutput:
    a: int
    b: int
    c: int
    payload: object = None
""",
    RUNNER: "from vllm_omni.outputs import OmniOutput\n\nOmniOutput(a=1, b=2, c=3)\n",
}
OURS = "    out = OmniOutput(a=1, b=2, c=3, payload=4)\n    if self.timed:"
THEIRS = "    out = Output(a=1, b=2, c=3, drafts=self.drafts)\n    if self.timed and self.on:"


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (OURS, THEIRS, "ours calls OmniOutput() where theirs calls Output(), and it has no parameter drafts"),
        (OURS, THEIRS.replace(", drafts=self.drafts", ""), ""),
        (OURS, THEIRS.replace("a=1, b=2, c=3, ", ""), ""),  # nothing tells that the one stands for the other
        (OURS, THEIRS.replace("Output", "OmniOutput"), ""),  # theirs has it, and the check of an answer tells
        ("x = (", THEIRS, ""),
        ("", THEIRS, ""),
    ],
)
def test_a_keyword_that_the_class_in_its_place_does_not_take_is_told(
    tmp_path: Path, ours: str, theirs: str, said: str
) -> None:
    found = untaken(make_triple(tmp_path, FILES), [(RUNNER, "Runner.step", ("", ours, theirs))])
    assert found == ([f"Runner.step: {said}"] if said else [])
