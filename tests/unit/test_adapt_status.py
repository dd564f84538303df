"""`adapt.py status` and `adapt.py report`: where an adaptation stands, for agents and for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from artifacts_kit import analysed
from model_kit import LLAMA
from page_kit import HOSTILE, Page
from stages_kit import MODEL, SOME_CODE, planned, ran, served, state

from npu_upgrade.checkpoint.reading import Finding
from npu_upgrade.cli import main as cli
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.verdict import Verdict

PLAN = {
    "model": MODEL,
    "name": "Tiny",
    "strategy": {"name": "config only"},
    "trees": {"vllm": {"root": "/none/vllm", "there": False}},
    "steps": [
        {"name": "adapter", "what": "write it", "files": [{"root": "vllm", "path": "a.py", "change": "new"}]}
    ],
    "decisions": ["attention: gqa"],
}


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    def run(command: str, *options: str | Path, form: str = "json") -> tuple[int, Any]:
        capsys.readouterr()
        argv = [command, *map(str, options), "--workspace", str(tmp_path), "--format", form]
        code = cli.main("adapt.py", "", ["next", "status", "report"], argv)
        out = capsys.readouterr().out
        return code, json.loads(out) if form == "json" else out

    return run


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Analysed, planned, and run by two installations."""
    note = Finding("note", "code-own", "code of its own")
    config = LLAMA | {"architectures": ["TinyForCausalLM"]}
    analysed(tmp_path, "Tiny", config, findings=[note])
    state(tmp_path, "plan.json", PLAN)
    ran(tmp_path, "serve", "dummy")
    ran(tmp_path, "serve", "real", Verdict.FAIL, code=Subject({"vllm": "b" * 64}))
    ran(tmp_path, "serve", "real")
    return tmp_path


def page(call, *options: str | Path) -> Page:
    code, data = call("report", *options)
    assert code == 0, data
    found = Page(Path(data["page"]).read_text("utf-8"))
    assert found.wrong == []
    return found


@pytest.mark.parametrize("command", ["status", "report"])
def test_nothing_was_begun(call, command: str) -> None:
    code, data = call(command)
    assert (code, "adapt.py analyze" in data["try"]) == (2, True)


def test_the_status_has_stages_runs_and_what_is_next(call, begun: Path) -> None:
    code, data = call("status")
    assert (code, data["job"], data["checkpoint"]) == (0, "Tiny", MODEL)
    states = {one["name"]: one["state"] for one in data["stages"]}
    assert [*states][:5] == ["analyze", "plan", "serve dummy", "serve real", "features"]
    assert (states["serve dummy"], states["serve real"], states["features"]) == ("done", "done", "todo")
    assert data["next"] == f"adapt.py features {MODEL} --work-dir {begun} --workspace {begun}"
    assert [one["gate"] for one in data["evidence"]] == ["serve", "serve"]
    (other,) = data["other_evidence"]
    assert (other["verdict"], "another vllm" in other["why"]) == ("FAIL", True)


def test_the_status_for_people(call, begun: Path) -> None:
    code, text = call("status", "Tiny", form="text")
    assert code == 0
    for part in (
        "/none/vllm",
        "serve dummy",
        "does not count: it ran another vllm",
        "next: adapt.py features",
    ):
        assert part in text


def test_the_status_changes_nothing(call, begun: Path) -> None:
    def state() -> dict[Path, bytes]:
        files = (path for path in begun.rglob("*") if path.is_file() and path.name != "calls.jsonl")
        return {path: path.read_bytes() for path in files}

    before = state()
    call("status")
    assert state() == before


def test_the_page_has_all_parts(call, begun: Path, tmp_path: Path) -> None:
    matrix = [{"feature": "graph", "status": "verified", "why": "replayed", "evidence": "server.log:7"}]
    ran(begun, "features", "real", Verdict.INCONCLUSIVE, more={"features": matrix})
    written = {"trees": {"/repo": {"files": {"docs/Tiny.md": "text", "mkdocs.yml": None}}}}
    state(begun, "artifacts.json", written)
    state(begun, "delivered.json", {"commit": "c0ffee"})
    found = page(call, "--out", tmp_path / "page.html")
    assert {"analysis", "plan", "timeline", "requirements", "features", "artifacts", "evidence"} <= set(
        found.ids
    )
    for part in (
        *("TinyForCausalLM", "code-own", "config only", "attention: gqa", "a.py", "/none/vllm"),
        *("another vllm", "server.log:7", "replayed", "docs/Tiny.md", "c0ffee", "adapt.py features"),
        "it loads and answers; nothing says that the answers are right",
    ):
        assert part in found.text, part


def test_every_state_has_a_page(call, tmp_path: Path) -> None:
    state(tmp_path, "analysis.json", {"model": MODEL})
    assert "Not planned yet." in page(call).text
    planned(tmp_path)
    text = page(call).text
    assert ("What is to change, and why" in text, "Nothing has run yet." in text) == (True, True)
    for _ in range(5):
        ran(tmp_path, "serve", "dummy", Verdict.FAIL)
    assert "A person is needed" in page(call).text
    served(tmp_path, code=SOME_CODE)
    assert "Not delivered yet. Next: accuracy\n" in page(call).text


def test_an_inconsistent_checkpoint_is_the_first_thing_said(call, tmp_path: Path) -> None:
    error = Finding("error", "shard-missing", "model-2.safetensors is not there")
    analysed(tmp_path, "Tiny", LLAMA, findings=[error])
    text = page(call).text
    said = "The checkpoint is inconsistent: model-2.safetensors is not there"
    assert text.index(said) < text.index("What is to change, and why")
    assert f"analysis: {said.lower()}" not in text.replace(said, "").lower().partition("analysis\n")[0]


def test_a_gap_is_open_for_who_can_close_it(call, begun: Path) -> None:
    state(
        begun,
        "plan.json",
        PLAN | {"strategy": {"name": "reuse", "reasons": ["vLLM has it"]}, "decisions": []},
    )
    served(begun)
    state(begun, "artifacts.json", {"trees": {"/repo": {"files": {"a.py": "text"}}}})
    for gate in ("accuracy", "performance", "requirements"):
        assert call("next", "--skip", gate, "--note", f"no {gate} here")[0] == 0
    state(begun, "delivered.json", {"commit": "c0ffee" * 6, "branch": "adapt"})
    text = Path(call("report", "--markdown")[1]["page"]).read_text("utf-8")
    assert "Delivered: commit c0ffeec0ffee on adapt; nothing that counts ran on an NPU" in text
    assert "\nOpen for: a reviewer, who has an NPU\n" in text
    assert (
        "TinyForCausalLM is to run on vllm-ascend: code for it is there, so the change is its pages and "
        "its configuration (vLLM has it)." in text
    )
    assert "\n- adapter: write it\n" in text
    assert "\n- a.py: new, in vllm; written\n" in text
    assert "what it said of exactly this checkpoint" in text
    reviewer, npu = text.index("**a reviewer**"), text.index("**who has an NPU**")
    assert reviewer < text.index("accuracy was left out: no accuracy here") < npu
    assert npu < text.index("npu: real weights were served on a CPU only")
    assert "accuracy: no accuracy run" not in text  # it is told with why it was left out


@pytest.mark.parametrize("file", ["analysis.json", "plan.json", "artifacts.json", "delivered.json"])
@pytest.mark.parametrize("value", [{"model": MODEL, "trees": 3, "steps": [1], "strategy": []}, []])
def test_files_of_another_version_make_a_page(call, begun: Path, file: str, value: Any) -> None:
    state(begun, file, value)
    page(call)
    assert call("status")[0] == 0


def test_hostile_contents_stay_text(call, begun: Path) -> None:
    broken = {
        key: HOSTILE if isinstance(value, str) and key != "model" else value for key, value in PLAN.items()
    }
    broken |= {"decisions": [HOSTILE], "trees": {HOSTILE: {"root": HOSTILE, "there": True}}}
    state(begun, "plan.json", broken)
    path = begun / ".npu-upgrade/adapt/Tiny/analysis.json"
    analysis = json.loads(path.read_text())
    state(
        begun,
        "analysis.json",
        analysis | {"quantization": {"scheme": HOSTILE}, "findings": [{"what": HOSTILE}]},
    )
    assert "alert(1)" in page(call).text


def test_an_output_that_is_a_folder(call, begun: Path, tmp_path: Path) -> None:
    code, data = call("report", "--out", tmp_path)
    assert (code, "report.html" in data["try"]) == (2, True)
