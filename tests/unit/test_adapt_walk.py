"""From a model's folder to the commit by the commands that `adapt.py next` names, over the fake vLLM."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import adapt_kit
import artifacts_kit
import model_kit
import pytest
import serving_kit as kit
from deliver_support import git

from npu_upgrade.cli import main as cli
from npu_upgrade.cli.programs import ADAPT

# what the fake vLLM answers to `bench serve`, in front of its server
BENCH = """
import sys
if sys.argv[1:2] == ["bench"]:
    import json, pathlib
    given = dict(zip(sys.argv, sys.argv[1:]))
    told = {"completed": int(given["--num-prompts"]), "output_throughput": 812.5}
    told |= {"total_token_throughput": 7000, "median_ttft_ms": 31.25, "median_tpot_ms": 4.5}
    pathlib.Path(given["--result-dir"], given["--result-filename"]).write_text(json.dumps(told))
    sys.exit()
"""
NOTE = "not here"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter with the fake vLLM, which can be measured."""
    found = kit.machine(tmp_path / "machine")
    (main,) = (tmp_path / "machine").glob("lib/python3*/site-packages/vllm/entrypoints/cli/main.py")
    head, future, rest = main.read_text().partition("from __future__ import annotations\n")
    main.write_text(f"{head}{future}{BENCH}{rest}")
    return found


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = cli.main("adapt.py", "", ADAPT, [str(word) for word in words])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_next_alone_leads_to_the_commit_and_never_in_a_circle(call, python: Path, tmp_path: Path) -> None:
    model = model_kit.checkpoint(tmp_path / "Tiny", model_kit.LLAMA)
    repo = artifacts_kit.mkdocs_tree(tmp_path / "vllm-ascend")
    code, refused = call("plan", model, "--delivery", repo)
    assert (code, "git clone https://" in refused["try"], "git -C" in refused["try"]) == (2, True, True)
    adapt_kit.start(repo)
    assert call("analyze", model)[0] == 0
    needed = f"git -C {repo} switch -c adapt-Tiny"
    assert needed in call("plan", model, "--delivery", repo)[1]["summary"]
    git(repo, "switch", "-q", "-c", "adapt-tiny")
    code, planned = call("plan", model, "--delivery", repo)
    assert (code, needed in planned["summary"]) == (0, False)
    ran: list[list[str]] = []
    skipped: list[str] = []
    for _ in range(20):
        code, said = call("next")
        assert code == 0, said
        if "every stage is done" in said["summary"]:
            break
        stage = re.split(r" is the next stage|:", said["summary"])[0]
        if stage == "accuracy":
            assert stage not in skipped
            skipped.append(stage)
            call("next", "--skip", stage, "--note", NOTE)
            continue
        words = shlex.split(said["next"])
        words = words[next(n for n, word in enumerate(words) if word.endswith("adapt.py")) + 1 :]
        if stage == "serve dummy":
            words += ["--python", str(python), "--quiet", "0.2", "--generations", "1"]
        if stage == "artifacts":
            words += ["--unpublished", "checkpoints/Tiny"]
        assert words not in ran
        ran.append(words)
        assert call(*words)[0] in (0, 1)  # one of the features is not in the fake release
    names = [words[0] for words in ran]
    assert names == ["serve", "serve", "features", "capacity", "artifacts", "deliver"]
    assert all(str(python) in words for words in ran[:4])
    assert git(repo, "rev-list", "--count", "main..HEAD").strip() == "1"
    body = git(repo, "show", "-s", "--format=%B", "HEAD")
    left_out = f"Left out: - accuracy (no accuracy run with real weights passed): {NOTE}"
    assert left_out in " ".join(body.split())
    assert "NPU-Validation: pending" in body
    assert git(repo, "status", "--porcelain") == ""
