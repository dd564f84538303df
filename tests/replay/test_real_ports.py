"""Real releases: what the port command finds on the GPU side, and takes over."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from known_runners import RUNNERS
from npu_upgrade.cli import main as cli
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import undefined_names
from npu_upgrade.sources.tree import open_source

pytestmark = pytest.mark.network

AR = RUNNERS[1]
SAMPLE = f"{AR.class_name}._sample"


def port(folder: Path, omni: str, ascend: str, *more: str) -> tuple[int, dict[str, Any]]:
    """Run the command on releases, with the ledger in ``folder``."""
    specs = ["--omni", f"pypi:vllm-omni=={omni}", "--ascend", f"pypi:vllm-ascend=={ascend}"]
    place = ["--workspace", str(folder), "--output", str(folder / "result.json")]
    code = cli.main("upgrade.py", "test", ["port"], ["port", *specs, *more, *place])
    return code, json.loads((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    code, data = port(tmp_path_factory.mktemp("list"), "0.20.0", "0.20.2rc1")
    assert code == 0
    return data


def test_an_override_that_the_npu_runner_lacks_is_at_the_top(listed: dict[str, Any]) -> None:
    """0.20.0 decodes without asking the model's own sampler: #3517."""
    sample = next(hunk for hunk in listed["hunks"] if hunk["unit"] == SAMPLE)
    assert sample["tier"] == 1
    assert listed["since"]["inferred"]


def test_what_the_gpu_side_renamed_and_rebased_is_at_the_top(listed: dict[str, Any]) -> None:
    """The seed that became a generator (#3476), and the mixin that the NPU classes lack (#5234)."""
    top = [hunk for hunk in listed["hunks"] if hunk["tier"] == 1]
    assert any("generator" in hunk["text"] and hunk["group"] == "base._talker_mtp_forward" for hunk in top)
    mixins = [hunk["text"] for hunk in top if hunk["kind"] == "base"]
    assert mixins == ["+ OmniConnectorModelRunnerMixin"] * 2


def test_the_override_is_taken_over_with_what_it_needs(listed: dict[str, Any], tmp_path: Path) -> None:
    sample = next(hunk["id"] for hunk in listed["hunks"] if hunk["unit"] == SAMPLE)
    code, data = port(tmp_path, "0.20.0", "0.20.2rc1", "--apply", sample, "--out", str(tmp_path / "out"))
    before = open_source("pypi:vllm-omni==0.20.0").read(AR.path)
    after = (tmp_path / "out" / AR.path).read_text()
    assert (code, data["refused"]) == (0, [])
    assert SAMPLE in parse_module(after).units
    assert undefined_names(after) == set()
    units = parse_module(after).units
    assert all(units[name].source == unit.source for name, unit in parse_module(before).units.items())


def test_the_release_that_has_the_override_does_not_list_it(tmp_path: Path) -> None:
    code, data = port(tmp_path, "0.22.0", "0.22.1rc1")
    assert code == 0
    assert not any(hunk["kind"] == "method" and hunk["unit"] == SAMPLE for hunk in data["hunks"])


def test_the_whole_first_tier_fits_together(tmp_path: Path) -> None:
    gpu = ["--gpu", "pypi:vllm-omni==0.20.0"]
    out = ["--top", "--out", str(tmp_path / "out")]
    code, data = port(tmp_path, "0.18.0", "0.19.1rc1", *gpu, *out)
    assert (code, data["refused"]) == (0, [])
    assert len(data["taken"]) > 20
    before = open_source("pypi:vllm-omni==0.18.0")
    for path in data["files"]:
        assert undefined_names(Path(path).read_text()) == set()
        old = tmp_path / "before.py"
        old.write_text(before.read(str(Path(path).relative_to(tmp_path / "out"))))
        assert _perhaps_unbound(Path(path)) <= _perhaps_unbound(old)


def _perhaps_unbound(path: Path) -> set[str]:
    """The names that the type checker sees without a value on some path: another judge than port's own."""
    rule = ["--ignore", "all", "--error", "possibly-unresolved-reference"]
    command = [str(Path(sys.executable).with_name("ty")), "check", "--output-format", "concise", *rule]
    found = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stderr
    return set(re.findall(r"`(\w+)`", found.stdout))
