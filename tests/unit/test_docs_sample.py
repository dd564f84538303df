"""The sample report of the site: what its page shows, and how its making fails."""

from __future__ import annotations

import html
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from sample_job import SAMPLE, make_page
from sample_world import ROOT, SampleError


@pytest.fixture(scope="module")
def page() -> str:
    return html.unescape(make_page())


def section(page: str, name: str) -> str:
    """The page between the heading of this id and the next one."""
    return page.partition(f'<h2 id="{name}">')[2].partition("<h2")[0]


def test_the_timeline_goes_to_the_commit(page: str) -> None:
    timeline = section(page, "timeline")
    assert re.findall(r"<td>audit</td>.*?>(FAIL|PASS)<", timeline) == ["PASS"]
    assert "the packages of this sample are invented" in timeline
    assert "Delivered: commit" in page


def test_the_conflict_is_there_with_its_answer(page: str) -> None:
    methods = section(page, "methods")
    assert "NPUARModelRunner.step</code>: conflict" in methods
    for side in ("(states)", "(states.float())", "(timer.watch(states))", "(timer.watch(states).float())"):
        assert f"self.choose{side}" in methods
    assert methods.count("Omni-new") > 10
    assert "conflict-" in section(page, "items")


def test_what_the_gpu_side_gained_is_there(page: str) -> None:
    port = section(page, "port")
    left, _, method = port.partition("1 hunk: left to the next upgrade</summary>")
    assert "NPUGenerationModelRunner.gather" not in left
    assert "NPUGenerationModelRunner.gather <code>" in method
    assert "+     return [*self.model.opening(), *super().gather(batch)]" in port
    assert "parcel = trimmed(parcel)" in section(page, "methods")


def test_the_findings_are_there(page: str) -> None:
    findings = section(page, "findings")
    assert re.findall(r'class="verdict (NEW|WAIVED|LAG)"', findings) == [
        "WAIVED",
        "LAG",
        "LAG",
        "LAG",
    ]  # the last two in a fold of their own
    assert "waived: models on NPU choose in their head" in findings
    assert "parity-overrides-" in section(page, "timeline")


def test_nothing_of_this_machine_is_on_the_page(page: str) -> None:
    for path in (tempfile.gettempdir(), str(ROOT), "sample-report-"):
        assert path not in page
    assert set(re.findall(r"\d{4}-\d\d-\d\dT", page)) == {"2026-02-02T"}


def test_a_question_without_an_answer_is_an_error(tmp_path: Path) -> None:
    sample = Path(shutil.copytree(SAMPLE, tmp_path / "sample"))
    (sample / "answers.json").write_text("{}")
    with pytest.raises(SampleError, match=r"answers.json has no 'conflict NPUARModelRunner.step'"):
        make_page(sample)


def test_a_command_that_fails_is_an_error(tmp_path: Path) -> None:
    sample = Path(shutil.copytree(SAMPLE, tmp_path / "sample"))
    (sample / "ascend/new/vllm_ascend/worker/model_runner_v1.py").write_text("class Broken(:\n")
    with pytest.raises(SampleError, match=r"(?s)exit code 2 of .* merge .*\n.*not Python"):
        make_page(sample)
