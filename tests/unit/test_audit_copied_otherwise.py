"""The check for copies that decide, reset or give otherwise than what they are copies of."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_kit import make_triple
from lineage_kit import UPSTREAM, body, commit_at, omni_files, steps, write_tree
from sources_kit import clean_machine, server  # noqa: F401

from npu_upgrade.audit.run import run_checks
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.sources.tree import open_source

TAIL = """
        if not batch.quiet and self.bell:
            self.bell.ring()
        late = self.clock is not None and self.bell
        rows = batch.rows
        rows.clear()
        group = get_group()
        self.send(batch, rows=rows)
        undo = self.undo_of(batch)
        if undo:
            undo()
            undo = None
        if undo and late:
            undo()
        batch = self.pending
        self.pending = None
"""
CLEARED = "        rows.clear()\n        group = get_group()\n        self.send(batch, rows=rows)\n"


def kinds(folder: Path, old: str, new: str, upstream: str = TAIL) -> list[str]:
    """What is told of a copy of a method that ends in TAIL, with ``old`` replaced by ``new``."""
    method = body("run", steps(12))
    assert old in TAIL
    clone = folder / "ascend"
    for date, tail in (("2026-01-01", TAIL), ("2026-02-01", upstream)):
        text = f"import torch\n\n\nclass NPUModelRunner:\n{method}{tail}\n"
        commit_at(clone, date, {UPSTREAM.path: text, "vllm_ascend/__init__.py": f"# {date}\n"})
    omni = write_tree(folder / "omni", omni_files(ar=f"{method}{TAIL.replace(old, new)}"))
    trees = open_source(f"dir:{omni}"), open_source(f"git:{clone}@HEAD"), make_triple(folder / "r", {}).vllm
    return [found.kind for found in run_checks(World(Triple(*trees)), ["copied-otherwise"])]


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("not batch.quiet and self.bell", "batch.quiet and self.bell", "inverted"),
        ("not batch.quiet and self.bell", "batch.quiet or not self.bell", "inverted"),
        ("self.clock is not None and", "self.clock is None and", "inverted"),
        ("        self.pending = None\n", "", "not-reset"),
        ("rows=rows", "rows=None", "emptied"),
        ("            undo = None\n", "", "not-reset"),
        (
            CLEARED,
            "        group = get_group()\n        self.send(batch, rows=rows)\n        rows.clear()\n",
            "moved",
        ),
    ],
)
def test_a_copy_that_does_otherwise_is_found(tmp_path: Path, old: str, new: str, kind: str) -> None:
    assert kinds(tmp_path, old, new) == [kind]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("not batch.quiet and self.bell", "self.bell and not batch.quiet"),
        ("not batch.quiet and self.bell", "not batch.quiet and self.bell and self.omni"),
        ("self.pending = None", "self.pending = self.next"),
        ("rows=rows", "rows=self.omni_rows"),
        (CLEARED, "        rows.clear()\n        self.send(batch, rows=rows)\n        group = get_group()\n"),
    ],
)
def test_what_says_the_same_or_adds_is_silent(tmp_path: Path, old: str, new: str) -> None:
    assert kinds(tmp_path, old, new) == []


def test_what_upstream_said_before_is_stale_and_no_more(tmp_path: Path) -> None:
    turned = TAIL.replace("not batch.quiet and", "batch.quiet and")
    assert kinds(tmp_path, "rows=rows", "rows=rows", turned) == []
