"""A new environment imports once, whatever comes of it; vllm-omni's tree does not make it import again."""

import pytest

from npu_upgrade.gates.emulation import process
from npu_upgrade.ground.errors import Blocked


@pytest.fixture
def imports(monkeypatch, tmp_path):
    """The plans that were played; the second one's import ends badly."""
    plans = []

    def play(python, variables, plan, out):
        plans.append(plan)
        if len(plans) == 2:
            raise Blocked("no", expected="-", try_="-")

    monkeypatch.setattr(process, "play", play)
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    return lambda **names: process.import_once(
        python, {}, {name: tmp_path / value for name, value in names.items()}, lambda: "ascend.runner"
    ), plans


def test_once_for_each_vllm_and_vllm_ascend(imports):
    do, plans = imports
    for omni in ("omni-1", "omni-2"):
        do(vllm="vllm-1", vllm_ascend="ascend-1", vllm_omni=omni)
    assert [plan["modules"] for plan in plans] == [["ascend.runner"]]
    for _ in range(2):
        do(vllm="vllm-1", vllm_ascend="ascend-2")
    assert len(plans) == 2


def test_an_interrupted_import_is_done_again(imports, monkeypatch):
    do, plans = imports
    whole = process.play

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "play", interrupted)
    with pytest.raises(KeyboardInterrupt):
        do(vllm="vllm-1", vllm_ascend="ascend-1")
    monkeypatch.setattr(process, "play", whole)
    do(vllm="vllm-1", vllm_ascend="ascend-1")
    assert len(plans) == 1
