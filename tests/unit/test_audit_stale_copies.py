"""The check on stale copies: what upstream changed since, and what omni changed itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from audit_kit import make_triple
from lineage_kit import UPSTREAM, body, commit_at, omni_files, publish, steps, upstream_source, write_tree
from sources_kit import clean_machine, server  # noqa: F401

from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import run_checks
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.sources.tree import open_source

DATE = datetime(2025, 12, 1, tzinfo=UTC)


def findings(folder: Path, ours: list[str], *versions: list[str]) -> list[Finding]:
    """The findings on a runner whose ``run`` has the steps ``ours``, with these versions of upstream's."""
    clone = folder / "ascend"
    for number, lines in enumerate(versions, 1):
        text = upstream_source({"run": lines})
        commit_at(clone, f"2026-0{number}-01", {UPSTREAM.path: text, "vllm_ascend/__init__.py": ""})
    omni = write_tree(folder / "omni", omni_files(ar=body("run", ours)))
    ascend = open_source(f"git:{clone}@HEAD")
    vllm = make_triple(folder / "rest", {}).vllm
    return run_checks(World(Triple(open_source(f"dir:{omni}"), ascend, vllm)), ["stale-copies"])


def test_a_copy_of_the_given_version_is_not_stale(tmp_path: Path) -> None:
    assert findings(tmp_path, steps(12), steps(9), steps(12)) == []


def test_what_upstream_added_since(tmp_path: Path) -> None:
    found = findings(tmp_path, steps(12), steps(12), [*steps(12), "flush", "close_all"])
    assert [(f.kind, f.owner, f.subject, f.incident) for f in found] == [
        ("not-synced", "NPUARModelRunner", "run", "V")
    ]
    assert "2 statements" in found[0].what


def test_what_omni_added_is_not_upstreams(tmp_path: Path) -> None:
    assert findings(tmp_path, [*steps(12), "talk"], steps(12), steps(12)) == []


def test_what_omni_dropped_on_purpose_stays_dropped(tmp_path: Path) -> None:
    ours = [step for step in steps(14) if step not in ("step_5", "step_6")]
    assert findings(tmp_path, ours, steps(14), steps(14)) == []


def test_what_was_ported_by_hand_is_not_missing(tmp_path: Path) -> None:
    ours = [*steps(12), "flush"]
    assert findings(tmp_path, ours, steps(12), [*steps(12), "flush"]) == []


def test_log_lines_alone_make_nothing_stale(tmp_path: Path) -> None:
    clone = tmp_path / "ascend"
    old, new = (upstream_source({"run": steps(12)}) for _ in range(2))
    new = new.replace("        self.step_3", "        logger.info('three')\n        self.step_3")
    for date, text in (("2026-01-01", old), ("2026-02-01", new)):
        commit_at(clone, date, {UPSTREAM.path: text, "vllm_ascend/__init__.py": ""})
    omni = write_tree(tmp_path / "omni", omni_files(ar=body("run", steps(12))))
    trees = open_source(f"dir:{omni}"), open_source(f"git:{clone}@HEAD"), make_triple(tmp_path / "r", {}).vllm
    assert run_checks(World(Triple(*trees)), ["stale-copies"]) == []


def test_what_both_sides_replaced_counts_as_missed(tmp_path: Path) -> None:
    found = findings(tmp_path, steps(14, _6="mine"), steps(14), steps(14, _6="theirs"))
    assert [f.what.partition("lacks ")[2][:12] for f in found] == ["1 statements"]


def test_what_omni_dropped_stays_dropped_when_upstream_changes_it(tmp_path: Path) -> None:
    ours = ["own" if step == "step_5" else step for step in steps(14) if step != "step_6"]
    assert findings(tmp_path, ours, steps(14), steps(14, _6="changed")) == []


def _release(number: int) -> dict[str, list[str]]:
    """``run`` changes a little with every release; ``profile`` was rewritten after the third."""
    old = steps(10) if number <= 3 else [f"warm_{step}" for step in range(10)]
    return {"run": [f"first_{number}", *steps(12)], "profile": old}


def test_a_copy_older_than_the_versions_lineage_looks_at(server, tmp_path: Path) -> None:  # noqa: F811
    releases = {f"0.{n}.0": (f"2025-{n:02}-01", upstream_source(_release(n))) for n in range(1, 12)}
    publish(server, releases)
    ours = "\n\n".join([body("run", [*_release(10)["run"], "talk"]), body("profile", steps(10))])
    omni = replace(open_source(f"dir:{write_tree(tmp_path / 'o', omni_files(ar=ours))}"), date=DATE)
    ascend = open_source("pypi:vllm-ascend==0.11.0")
    found = run_checks(World(Triple(omni, ascend, make_triple(tmp_path / "r", {}).vllm)), ["stale-copies"])
    assert ("profile", "0.3.0") in {(f.subject, f.here.text.rpartition(" ")[2]) for f in found}
