"""Real pipelines of vllm-omni on the emulated NPU: a picture, speech, and a defect that is seen in them."""

import pytest

from bench.edits import edited
from bench.emulator_pairs import MATCHED
from npu_upgrade.audit.world import Triple
from npu_upgrade.gates.emulation.catalogue import chosen
from npu_upgrade.gates.emulation.dry_run import run

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("machine")]
NEWEST = MATCHED[-1]


def test_a_picture_and_speech_are_right_on_the_newest_pair(tmp_path):
    played = run(
        NEWEST.triple(), chosen(["qwen-image", "qwen3-tts"], ["pipelines"], omni=True), tmp_path / "right"
    )
    assert [(one.state, one.why) for one in played.outcomes] == [("PASS", "")] * 3
    speech = played.outcomes[-1]
    assert "npu_ar_worker.NPUARWorker" in speech.worker
    assert "npu_generation_model_runner.NPUGenerationModelRunner" in speech.runner
    # the platform's own hooks of diffusion are watched, too
    hooks = played.ran["pipelines", "qwen-image"].executed["vllm_omni/platforms/npu/platform.py"]
    assert any("diffusion" in name and statements for name, statements in hooks.items()), hooks


def test_a_wrong_norm_of_the_npu_is_seen_in_picture_and_video(tmp_path):
    right = NEWEST.triple()
    edit = {
        "in": "omni",
        "path": "vllm_omni/diffusion/layers/adalayernorm.py",
        "at": "AdaLayerNorm.forward_npu",
        "do": "replace-expression",
        "expression": "1 + scale",
        "to": "1.2 + scale",
    }
    wrong = Triple(edited(right.omni, [edit]), right.ascend, right.vllm)
    played = run(wrong, chosen(["qwen-image", "wan-ti2v"], ["pipelines"], omni=True), tmp_path / "wrong")
    for ran in played.outcomes[1:]:
        assert ran.state == "FAIL"
        assert "'answer' is 0." in ran.why
        assert "away from the reference" in ran.why
