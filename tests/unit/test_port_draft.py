"""What of the GPU side's method is not brought to the NPU side as a whole."""

from __future__ import annotations

import pytest

from npu_upgrade.code.statements import split_statements
from npu_upgrade.port.draft import _without

BEFORE = "def run(self, batch):\n    return self.forward(batch)\n"


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("self.mark(batch)\nif self.late:\n    self.receive()\n", "self.mark(batch)\n"),
        # a name of it is read
        ("fits = self.fits(batch)\nself.mark(fits)\n", "fits = self.fits(batch)\nself.mark(fits)\n"),
        # only a part of a block is vLLM's
        (
            "if self.late:\n    self.mark(batch)\n    self.receive()\n",
            "if self.late:\n    self.mark(batch)\n",
        ),
        # a block may not be empty
        ("with self.timed:\n    self.receive()\n", "with self.timed:\n    self.receive()\n"),
    ],
)
def test_what_vllm_has_and_vllm_ascend_does_without_is_left_out(body: str, left: str) -> None:
    theirs = BEFORE.replace(
        "    return", "".join(f"    {line}\n" for line in body.splitlines()) + "    return"
    )
    wanted = BEFORE.replace(
        "    return", "".join(f"    {line}\n" for line in left.splitlines()) + "    return"
    )
    keys = {"if self.late:", "self.receive()", "fits = self.fits(batch)", "return self.forward(batch)"}
    found = _without(*(split_statements(text) for text in (BEFORE, theirs)), keys)
    assert [one.key for one in found] == [one.key for one in split_statements(wanted)]
