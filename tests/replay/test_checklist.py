"""The runners' pre-commit checklist on real sources: a broken line is found by the check it names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from documented import ROOT
from known_runners import RUNNERS
from npu_upgrade.cli import main as cli
from npu_upgrade.sources.tree import open_source

OMNI, ASCEND = "pypi:vllm-omni==0.30.0", "pypi:vllm-ascend==0.30.0rc2"
BASE, AR, _ = (runner.path for runner in RUNNERS)
FOUND = {
    ("imports", "NoSuchThing"): "an import that vllm-ascend does not have",
    ("cuda-names", "CUDAGraphWrapper"): "vLLM's graph wrapper in NPU code",
    ("forward-context", "CUDAGraphWrapper"): "and not vllm-ascend's own",
    ("forward-context", "set_forward_context"): "vLLM's forward context",
    ("signatures", "sample_tokens"): "a signature that upstream's call does not fit",
    ("calls", "set_forward_context"): "keywords that vLLM's forward context does not take",
}


def broken(path: str, text: str) -> str:
    """A runner file with lines of the checklist broken."""
    if path == AR:
        text = text.replace(
            "from vllm_ascend.compilation.acl_graph import ACLGraphWrapper",
            "from vllm.compilation.cuda_graph import CUDAGraphWrapper\n"
            "from vllm_ascend.compilation.acl_graph import NoSuchThing",
        ).replace("ACLGraphWrapper", "CUDAGraphWrapper")
        return re.sub(r"def sample_tokens\(\s*self,", "def sample_tokens(self, unheard_of,", text)
    if path == BASE:
        text = re.sub(r"from vllm_ascend\.ascend_forward_context import .*", "", text)
        own = "from vllm.forward_context import get_forward_context, set_forward_context\n"
        return text.replace("\nfrom ", f"\n{own}from ", 1).replace("set_ascend_forward", "set_forward")
    return text


@pytest.mark.network
def test_broken_lines_of_the_checklist_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    omni = open_source(OMNI)
    for path in omni.list(""):
        if path.endswith((".py", "METADATA")):
            target = tmp_path / "omni" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(broken(path, omni.read(path)))
    specs = ["--omni", f"dir:{tmp_path / 'omni'}", "--ascend", ASCEND, "--baseline", OMNI, ASCEND]
    command = ["audit", *specs, "--output", str(tmp_path / "audit.json")]
    assert cli.main("upgrade.py", "", ["audit"], command) == 1
    capsys.readouterr()
    findings = json.loads((tmp_path / "audit.json").read_text())["findings"]
    new = [(one["check"], one["subject"]) for one in findings if one["state"] == "NEW"]
    checks = {check for check, _ in FOUND}
    missed = [
        row for row in FOUND if not any(row[0] == check and row[1] in subject for check, subject in new)
    ]
    assert missed == []
    assert {check for check, _ in new} == checks | {"unused"}  # what nobody heard of is not used


def test_the_checklist_names_these_checks() -> None:
    rows = (ROOT / "references" / "checklist.md").read_text()
    named = set(re.findall(r"[a-z-]+", " ".join(re.findall(r"`upgrade\.py audit --check ([a-z -]+)`", rows))))
    assert {check for check, _ in FOUND} <= named
