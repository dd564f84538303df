"""Hunks bring what they need, or do not count as fitting: values, guards, buffers, markers, places."""

from __future__ import annotations

import textwrap

import pytest
from lineage_kit import RUNNERS

from npu_upgrade.code.statements import split_statements
from npu_upgrade.port.driven import Upstream
from npu_upgrade.port.hunks import Hunk, unit_hunks
from npu_upgrade.port.place import Placed, place


def method(body: str) -> str:
    return "    def run(self, batch):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)


def hunks(old: str, new: str, upstream: Upstream | None = None) -> list[Hunk]:
    sides = (split_statements(method(text)) for text in (old, new))
    return list(unit_hunks(RUNNERS[1], "NPUARModelRunner.run", *sides, upstream or Upstream()))


def placed(old: str, new: str, ours: str, upstream: Upstream | None = None) -> Placed:
    """All hunks of a change in the unit ``ours``."""
    found = hunks(old, new, upstream)
    assert found
    assert found[0].diff
    return place(found, found[0].diff, method(ours))


OLD = "self.begin(batch)\nself.prepare(batch)\nself.finish(batch)"


def test_a_hunk_brings_the_value_that_vllm_gives_too() -> None:
    new = "self.begin(batch)\ncount = None\nself.prepare(batch)\nself.finish(batch, count)"
    (hunk,) = hunks(OLD, new, Upstream(after={"count = None"}))
    assert "count = None" in hunk.added


def test_a_name_that_a_path_of_the_npu_side_does_not_bind_is_refused() -> None:
    old = "rows = self.rows(batch)\nself.prepare(batch)\nself.finish(batch)"
    ours = "if self.eager:\n    rows = self.rows(batch)\nself.prepare(batch)\nself.finish(batch)"
    found = placed(old, old + "\nself.tell(rows)", ours)
    assert found.text is None
    assert "rows may have no value" in found.reason


def test_a_guard_that_the_npu_side_left_out_is_lost() -> None:
    old = "self.begin(batch)\nif batch.rows:\n    self.prepare(batch)\nself.finish(batch)"
    new = old.replace("self.finish", "    self.count(batch)\nself.finish")
    kept = "self.begin(batch)\nif batch.rows:\n    self.prepare(batch)\nself.finish(batch)"
    elsewhere = "if batch.rows:\n    self.begin(batch)\nself.prepare(batch)\nself.finish(batch)"
    assert placed(old, new, kept).text
    assert placed(old, new, elsewhere).text is None


def test_a_hunk_does_not_land_under_a_condition_of_its_neighbour() -> None:
    old = "self.begin(batch)\nflush = batch.flush\nif callable(flush):\n    flush(batch)\nself.finish(batch)"
    new = old.replace("self.finish", "if batch.rows is None:\n    self.count(batch)\nself.finish")
    found = placed(old, new, old.replace("self.finish(batch)", "self.finish(batch, npu=True)"))
    assert found.text
    lines = found.text.split("\n")
    guard = next(n for n, line in enumerate(lines) if "batch.rows is None" in line)
    assert lines[guard].startswith(" " * 8 + "if")
    assert lines[guard + 1].startswith(" " * 12 + "self.count")


def test_a_hunk_stands_below_the_value_that_it_changes() -> None:
    old = "options = self.options()\nself.prepare(batch)\nself.finish(batch, options)"
    new = "options = self.options()\noptions['n'] = 1\nself.prepare(batch)\nself.finish(batch, options)"
    ours = "self.prepare(batch)\noptions = self.options()\nself.finish(batch, options)"
    found = placed(old, new, ours)
    assert found.text
    order = [line.strip() for line in found.text.split("\n")[1:]]
    assert order.index("options['n'] = 1") == order.index("options = self.options()") + 1


def test_a_size_is_not_set_apart_from_its_buffer() -> None:
    old = "self.width = self.hidden\nself.rows = self.make(self.hidden)\nself.finish(batch)"
    new = "self.width = self.inputs\nself.rows = self.make(self.width)\nself.finish(batch)"
    size = next(hunk for hunk in hunks(old, new) if any("self.inputs" in key for key in hunk.added))
    assert size.diff
    pieces = [
        piece for piece in size.diff.pieces if size.diff.new[piece.b0].key == "self.width = self.inputs"
    ]
    alone = Hunk("change", size.runner, size.unit, size.old, size.new, size.diff, tuple(pieces))
    found = place([alone], size.diff, method(old))
    assert found.text is None
    assert "makes rows without self.width" in found.reason


@pytest.mark.parametrize("fence", ["# ---- Omni-new ----", "# Omni-new"])
def test_half_a_pair_of_markers_does_not_come(fence: str) -> None:
    old = "self.begin(batch)\nself.finish(batch)"
    new = f"self.begin(batch)\n{fence}\nself.count(batch)\n{fence}\nself.finish(batch)"
    found = placed(old, new, old)
    assert found.text
    assert found.text.count(fence) % 2 == 0


def test_blank_lines_beside_a_hunk_stay_as_the_npu_side_has_them() -> None:
    about = "# what prepare is for"
    old = f"self.begin(batch)\n\n{about}\nself.prepare(batch)\n\nself.tell(batch)\nself.finish(batch)"
    new = old.replace(about, f"{about}\nself.warm_up(batch)")
    ours = f"self.begin(batch)\n{about}\nself.prepare(batch)\nself.tell(batch)\n\nself.finish(batch)"
    wanted = ours.replace(about, f"{about}\nself.warm_up(batch)")
    assert placed(old, new, ours).text == method(wanted)
