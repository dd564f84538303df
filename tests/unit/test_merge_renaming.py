"""Statements that both sides added in their own words."""

from __future__ import annotations

import pytest

from npu_upgrade.code.statements import split_statements
from npu_upgrade.threeway.method import merge_method
from npu_upgrade.threeway.pieces import render_pieces

BASE = "def step(self, ids):\n    self.begin(ids)\n    return self.end({last})\n"


@pytest.mark.parametrize(
    ("ours", "theirs", "last", "kept"),
    [
        (
            "count = ids.shape[0]\nrows = ids[:count]",
            "size = ids.shape[0]\nrows = ids[:size]",
            "rows",
            "ours",
        ),
        # another value
        (
            "count = ids.shape[0]\nrows = ids[:count]",
            "size = ids.shape[1]\nrows = ids[:size]",
            "rows",
            "both",
        ),
        # what comes later in theirs reads its name
        (
            "count = ids.shape[0]\nrows = ids[:count]",
            "size = ids.shape[0]\nrows = ids[:size]",
            "size",
            "both",
        ),
        # other names, crossed
        ("a = ids.x\nb = ids.y\nrows = a, b", "c = ids.x\nd = ids.y\nrows = d, c", "rows", "both"),
    ],
)
def test_what_both_sides_added_in_their_own_words_is_there_once(
    ours: str, theirs: str, last: str, kept: str
) -> None:
    base = BASE.replace("{last}", last)

    def added(lines: str) -> str:
        return base.replace(
            "    return", "".join(f"    {line}\n" for line in lines.split("\n")) + "    return"
        )

    merged = merge_method(*map(split_statements, (base, added(ours), added(theirs))))
    text = render_pieces(merged.pieces, ("ours", "base", "theirs"))
    assert (text == added(ours).rstrip("\n") and not merged.flags) is (kept == "ours")
    assert bool(merged.flags or merged.conflicts) is (kept == "both")
