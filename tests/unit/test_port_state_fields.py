"""Fields of a runner's state that come with what was ported."""

from __future__ import annotations

import pytest

from npu_upgrade.port.state_fields import with_state_fields

AR, OTHER = "npu/ar.py", "npu/generation.py"
GPU = """
class State(NamedTuple):
    logits: Tensor
    slots: list[int]
    step_id: int | None = None
    rows: int


class Table:
    step_id: int
"""
NPU = """
class State(NamedTuple):
    logits: Tensor
    batch: Batch  # omni


class Runner:
    def step(self):
        return State(logits, batch{more})
"""


@pytest.mark.parametrize(
    ("more", "other", "lines"),
    [
        ("", "", []),
        (", step_id", "", ["    step_id: int | None = None"]),
        (", step_id=self.step_id", "", ["    step_id: int | None = None"]),
        (", rows", "", ["    rows: int"]),
        (", rows", "State(logits, batch)", ["    rows: int = None"]),
        (
            ", step_id, rows=1",
            "State(logits, batch)",
            ["    step_id: int | None = None", "    rows: int = None"],
        ),
        (", rows, step_id", "", []),  # in another order
        (", nothing", "", []),
    ],
)
def test_a_field_that_a_call_gives_comes_with_it(more: str, other: str, lines: list[str]) -> None:
    text = NPU.replace("{more}", more)
    after = with_state_fields(AR, {AR: text, OTHER: f"def run():\n    {other or 'pass'}\n"}, GPU)
    own = "    batch: Batch  # omni\n"
    assert after == text.replace(own, own + "".join(f"{line}\n" for line in lines))
