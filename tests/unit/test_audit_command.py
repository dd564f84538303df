"""``upgrade.py audit``: what it is given, what it compares with, and its verdicts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from audit_kit import AR, make_triple
from merge_kit import upgrade

from npu_upgrade.audit import run as audit_run
from npu_upgrade.audit.judge import FILE
from npu_upgrade.audit.world import World

GONE = "from vllm.gone import thing\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def specs(folder: Path) -> list[str]:
    return [f"dir:{folder / top}" for top in ("vllm_omni", "vllm_ascend", "vllm")]


def audit(new: Path, old: Path | str, *options: str) -> tuple[int, dict[str, Any], str]:
    omni, ascend, vllm = specs(new)
    baseline = [old] if isinstance(old, str) else specs(old)
    named = ["--omni", omni, "--ascend", ascend, "--vllm", vllm, "--baseline", *baseline]
    return upgrade("audit", *named, "--check", "imports", *options)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """A triple whose AR runner imports what is not there, and one without that."""
    new, old = tmp_path / "new", tmp_path / "old"
    make_triple(new, {})
    make_triple(old, {})
    place = new / "vllm_omni" / AR
    place.write_text(GONE + place.read_text())
    return new, old


def test_what_the_old_pair_does_not_have_fails(sides: tuple[Path, Path]) -> None:
    code, data, _ = audit(*sides)
    assert (code, data["counts"]["NEW"], data["label"]) == (1, 1, "static")
    (found,) = data["findings"]
    assert (found["state"], found["check"], found["here"]["path"], found["here"]["line"]) == (
        "NEW",
        "imports",
        AR,
        1,
    )
    assert all(found[name] for name in ("key", "what", "why", "todo", "incident"))


def test_what_the_old_pair_has_too_is_lag(sides: tuple[Path, Path]) -> None:
    new, _ = sides
    code, data, _ = audit(new, new)
    assert (code, data["counts"]) == (0, {"NEW": 0, "LAG": 1, "NOTE": 0, "WAIVED": 0})


def test_without_an_old_pair_nothing_is_new_or_old(sides: tuple[Path, Path]) -> None:
    new, old = sides
    code, data, _ = audit(new, "none")
    assert (code, data["baseline"]) == (4, None)
    assert audit(old, "none")[0] == 0


def test_a_waiver_in_the_tree(sides: tuple[Path, Path]) -> None:
    new, old = sides
    key = audit(new, old)[1]["findings"][0]["key"]
    (new / "vllm_omni" / FILE).write_text(f"- key: {key}\n  reason: made later\n  until: '9.9'\n")
    code, data, _ = audit(new, old)
    assert (code, data["counts"]["WAIVED"], data["unused_waivers"]) == (0, 1, [])
    assert audit(old, old, "--waivers", str(new / "vllm_omni" / FILE))[1]["unused_waivers"] == [key]


def test_findings_are_kept_until_something_changes(
    sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = sides
    audit(new, old)

    def unexpected(*args: object) -> list:
        raise AssertionError("looked again")

    monkeypatch.setattr("npu_upgrade.audit.run.run_checks", unexpected)
    assert audit(new, old)[1]["counts"]["NEW"] == 1
    place = new / "vllm_omni" / AR
    place.write_text("# another text\n" + place.read_text())
    assert "looked again" in audit(new, old)[1]["broken_checks"]["imports"]


@pytest.mark.parametrize("on_old", [True, False])
def test_a_check_that_breaks_is_neither_fail_nor_pass(
    sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, on_old: bool
) -> None:
    new, old = sides
    whole = audit_run.run_checks

    def broken(world: World, names: list[str]) -> list:
        assert (world.old is None) is not on_old, "cannot read this"
        return whole(world, names)

    monkeypatch.setattr("npu_upgrade.audit.run.run_checks", broken)
    code, data, err = audit(new, old)
    assert (code, data["counts"]["NEW"]) == (4, 0)
    assert "cannot read this" in data["broken_checks"]["imports"]
    assert on_old or "Traceback" in err  # the old pair's goes to the process's own stderr
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(new.parent / "cache"))
    assert audit(new, old)[0] == 1  # nothing of the broken run was kept


def test_a_process_that_dies_is_made_up_for(
    sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multiprocessing.connection.Connection.send_bytes", lambda *arguments: os._exit(9))
    code, data, _ = audit(*sides)
    assert (code, data["counts"]["NEW"]) == (1, 1)
    assert audit(sides[0], sides[0], "--check", "markers")[0] == 0


def test_a_cache_that_cannot_be_read_is_made_again(sides: tuple[Path, Path]) -> None:
    audit(*sides)
    places = list((audit_run.cache_root() / "audit").glob("*/imports.json"))
    assert places
    for place in places:
        place.write_text('[{"key": 1}]')
    assert audit(*sides)[1]["counts"]["NEW"] == 1


def refusal(*arguments: str) -> str:
    code, data, _ = upgrade("audit", *arguments)
    assert code == 2, data
    assert data["expected"]
    assert data["try"]
    return data["error"]


def test_what_is_refused(sides: tuple[Path, Path], tmp_path: Path) -> None:
    omni, ascend, vllm = specs(sides[0])
    assert "without --ascend" in refusal("--omni", omni)
    assert "no check nothing" in refusal("--omni", omni, "--ascend", ascend, "--check", "nothing")
    assert "not vllm-omni" in refusal("--omni", vllm, "--ascend", ascend)
    assert "not vllm-ascend" in refusal("--omni", omni, "--ascend", vllm)
    assert "not vllm" in refusal("--omni", omni, "--ascend", ascend, "--vllm", omni)
    triple = ["--omni", omni, "--ascend", ascend, "--vllm", vllm]
    assert "--baseline" in refusal(*triple, "--baseline", vllm, vllm)
    assert "cannot be read" in refusal(*triple, "--baseline", "none", "--waivers", str(tmp_path / "none"))
    assert "which vllm release" in refusal("--omni", omni, "--ascend", ascend)


@pytest.mark.parametrize(
    ("path", "text", "what"),
    [
        (AR, "<<<<<<< ours\nx = 1\n=======\nx = 2\n>>>>>>> theirs\n", "conflict markers"),
        ("vllm_omni/platforms/npu/worker/other.py", "def broken(:\n", "is not Python: line 1"),
    ],
)
def test_a_tree_that_cannot_be_read(sides: tuple[Path, Path], path: str, text: str, what: str) -> None:
    omni, ascend, vllm = specs(sides[0])
    (sides[0] / "vllm_omni" / path).write_text(text)
    assert what in refusal("--omni", omni, "--ascend", ascend, "--vllm", vllm, "--baseline", "none")


def test_no_job_and_nothing_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no job" in refusal()
