"""What vLLM says itself, from an interpreter that is a stand-in here: the real one is the benchmark's."""

from __future__ import annotations

import json
import os
import sys

import model_kit as kit
import msgspec
import pytest

from npu_upgrade.checkpoint import oracle
from npu_upgrade.checkpoint.analysis import analyse
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.ground.errors import BadInput


@pytest.fixture
def interpreter(tmp_path):
    """Makes an executable that prints lines on stdout, whatever it is asked."""

    def make(*lines, code=0):
        path = tmp_path / "python"
        body = "\n".join(f"print({line!r})" for line in lines)
        path.write_text(f"#!{sys.executable}\nimport sys\nsys.stdin.read()\n{body}\nsys.exit({code})\n")
        os.chmod(path, 0o755)
        return path

    return make


def test_the_same_and_what_differs(tmp_path, interpreter):
    folder = kit.checkpoint(tmp_path / "m")
    own = analyse(folder, Sources()).file.properties
    same = msgspec.to_builtins(own)
    answer = oracle.ask(interpreter("noise", json.dumps(same)), [folder])[0]
    assert oracle.differences(own, answer) == []
    other = same | {"kv_heads": 7, "mla": True}
    assert [one.property for one in oracle.differences(own, other)] == ["kv_heads", "mla"]


@pytest.mark.parametrize("lines", [(), ("{}", "{}")])
def test_an_interpreter_that_does_not_answer(tmp_path, interpreter, lines):
    with pytest.raises(BadInput, match="gave no answer"):
        oracle.ask(interpreter(*lines, code=1), [tmp_path])


def test_no_interpreter(tmp_path):
    with pytest.raises(BadInput):
        oracle.ask(tmp_path / "nothing", [tmp_path])


def test_the_probe_imports_nothing_of_ours_and_trusts_nothing():
    text = oracle._PROBE.read_text()
    assert "npu_upgrade" not in text
    assert "trust_remote_code=False" in text
