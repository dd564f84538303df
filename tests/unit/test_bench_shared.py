"""What the benches share: results outlast a cut while their content is the same, goals set the exit code."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import shared
from bench.shared import Run, begin
from bench.walk import TRANSITIONS
from bench.walk_report import Walk


def counting(asked: list[str], result: object = "right") -> Callable[..., object]:
    def play(name: str) -> object:
        asked.append(name)
        return result

    return play


def test_a_kept_result_is_not_made_again(tmp_path: Path) -> None:
    asked: list[str] = []
    for content in ({"a": 1}, {"a": 1}, {"a": 2}):
        assert Run("b", "whole", tmp_path).result("one", content, str, counting(asked), "x") == "right"
    assert len(asked) == 2


def test_a_change_of_the_sources_makes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scripts").mkdir()
    monkeypatch.setattr(shared, "ROOT", tmp_path)
    asked: list[str] = []
    for text in ("x = 1", "x = 1", "x = 2"):
        (tmp_path / "scripts" / "a.py").write_text(text)
        Run("b", "whole", tmp_path / "keep").result("one", {}, str, counting(asked), "x")
    assert len(asked) == 2


def test_a_result_that_is_not_good_is_tried_again(tmp_path: Path) -> None:
    asked: list[str] = []
    run = Run("b", "whole", tmp_path)
    for _ in range(2):
        run.result("one", {}, str, counting(asked, "wrong"), "x", good=lambda said: said == "right")
    assert len(asked) == 2


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "cache_root", lambda: tmp_path)
    asked: list[str] = []
    for _ in range(2):
        run = begin("b", Namespace(whole=False, keep=None))
        run.result("one", {}, str, counting(asked), "x")
    assert len(asked) == 2
    assert list(tmp_path.iterdir()) == []


def test_what_is_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    run = Run("b", "whole", tmp_path)
    walk = Walk(TRANSITIONS[0], tmp_path / "repo", to_plan_s=1.5, known={"a", "b"})
    walk.steps.append(("merge", 2.0))
    walk.answered["conflict --with"] = 2
    run.store("one", {}, walk)
    assert run.found("one", {}, Walk) == walk


@pytest.mark.parametrize(
    ("whole", "chosen", "kind"), [(False, None, "default"), (True, None, "whole"), (True, ["x"], "chosen")]
)
def test_the_closing_line_says_which_run_it_was(
    whole: bool, chosen: list[str] | None, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = begin("bench-x", Namespace(whole=whole, keep=None), chosen)
    assert run.close({"recall": "0.9"}, []) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"bench-x: run={kind} recall=0.9"
    assert run.close({}, ["recall=0.8, goal 0.9"]) == 1
    assert "recall=0.8, goal 0.9" in capsys.readouterr().err
