"""Fields of a runner's state that come with what was ported."""

from __future__ import annotations

import pytest

from npu_upgrade.port.state_fields import with_state_fields, with_unpackings

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


TAKEN = """
class Runner:
    def step(self):
        self.state = state = made[0] = State(logits, batch)

    def sample(self):
{take}
"""


@pytest.mark.parametrize(
    ("take", "after"),
    [
        (
            "        (\n            logits,\n            batch,  # ä\n        ) = self.state",
            "        (\n            logits,\n            batch,  # ä\n"
            "            _rows,\n        ) = self.state",
        ),
        ("        logits, batch = self.state", "        logits, batch, _rows = self.state"),
        ("        (logits, batch,) = self.state", "        (logits, batch, _rows,) = self.state"),
        ("        logits, batch, rows = self.state", None),  # has it
        ("        logits, *batch = self.state", None),
        ("        logits, batch = self.other", None),
        ("        state = self.state", None),
        ("        logits, batch = made[0]()", None),  # of nothing with a name
        ("        logits, batch = state", None),  # another function's local name
    ],
)
def test_where_the_state_is_taken_apart_a_name_comes_with_a_new_field(take: str, after: str | None) -> None:
    before = {AR: NPU.replace("{more}", ", rows"), OTHER: TAKEN.replace("{take}", take)}
    grown = before | {AR: with_state_fields(AR, before, GPU)}
    assert grown[AR] != before[AR]
    expected = grown | {OTHER: TAKEN.replace("{take}", after or take)}
    assert with_unpackings(before, grown) == expected


def test_new_names_have_the_line_ends_of_their_file() -> None:
    before = {AR: NPU.replace("{more}", ", rows")}
    before[OTHER] = TAKEN.replace(
        "{take}", "        (\n            logits,\n            batch,\n        ) = self.state"
    )
    before[OTHER] = before[OTHER].replace("\n", "\r\n")
    after = with_unpackings(before, before | {AR: with_state_fields(AR, before, GPU)})
    added = "            batch,\r\n"
    assert after[OTHER] == before[OTHER].replace(added, f"{added}            _rows,\r\n")
