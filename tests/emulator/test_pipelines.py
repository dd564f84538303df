"""Real pipelines of vllm-omni on the emulated NPU: a picture, speech, and defects that are seen in them.

The other stages are broken by ``make bench-pipelines BENCH_ARGS=--stages``.
"""

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


@pytest.mark.parametrize(
    ("path", "at", "expression", "to", "pipeline"),
    [
        pytest.param(
            "layers/adalayernorm.py",
            "AdaLayerNorm.forward_npu",
            "1 + scale",
            "1.2 + scale",
            "qwen-image",
            id="a wrong norm of the NPU",
        ),
        pytest.param(
            "distributed/cfg_parallel.py",
            "CFGParallelMixin.predict_noise_maybe_with_cfg",
            "cfg_group.all_gather(p, separate_tensors=True)",
            "cfg_group.all_gather(p, separate_tensors=True)[::-1]",
            "qwen-image-cfg2",
            id="devices that take each other's prompts",
        ),
    ],
)
def test_what_is_wrong_is_seen_in_the_picture(path, at, expression, to, pipeline, tmp_path):
    edit = {"path": f"vllm_omni/diffusion/{path}", "at": at, "do": "replace-expression"}
    (ran,) = _wrong(edit | {"expression": expression, "to": to}, [pipeline], tmp_path)
    assert ran.state == "FAIL"
    assert "'answer' is 0." in ran.why
    assert "away from the reference" in ran.why


def test_a_replacement_that_computes_something_else_is_seen_though_the_sound_repeats(tmp_path):
    edit = {
        "path": "vllm_omni/platforms/npu/models/qwen3_tts_tokenizer_v2.py",
        "at": "_apply_rotary_pos_emb_npu",
        "do": "replace-expression",
        "expression": "npu_rotary_mul_with_bsnd_fallback(k, cos, sin, unsqueeze_dim)",
        "to": "npu_rotary_mul_with_bsnd_fallback(q, cos, sin, unsqueeze_dim)",
    }
    (ran,) = _wrong(edit, ["qwen3-tts"], tmp_path)
    assert ran.state == "FAIL"
    assert "_apply_rotary_pos_emb_npu, in the place of " in ran.why, ran.why


def test_two_devices_give_the_picture_and_the_video_of_one(tmp_path):
    names = ["qwen-image-cfg2", "wan-ti2v-sp2"]
    played = run(NEWEST.triple(), chosen(names, ["pipelines"], omni=True), tmp_path / "right")
    assert [(one.state, one.why) for one in played.outcomes] == [("PASS", "")] * 3
    for name in names:
        logs = (tmp_path / "right" / f"pipelines-{name}.log").read_text("utf-8", "replace")
        assert "Worker 0 created" in logs
        assert "Worker 1 created" in logs


def _wrong(edit, names, folder):
    """What the pipelines of the newest pair do with one edit of vllm-omni."""
    right = NEWEST.triple()
    wrong = Triple(edited(right.omni, [edit]), right.ascend, right.vllm)
    return run(wrong, chosen(names, ["pipelines"], omni=True), folder).outcomes[1:]
