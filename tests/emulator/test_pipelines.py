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
    edit = {
        "path": "vllm_omni/diffusion/layers/adalayernorm.py",
        "at": "AdaLayerNorm.forward_npu",
        "do": "replace-expression",
        "expression": "1 + scale",
        "to": "1.2 + scale",
    }
    for ran in _wrong(edit, ["qwen-image", "wan-ti2v"], tmp_path):
        assert ran.state == "FAIL"
        assert "'answer' is 0." in ran.why
        assert "away from the reference" in ran.why


def test_pictures_that_the_thinker_forgets_are_seen_in_its_words(tmp_path):
    edit = {
        "path": "vllm_omni/model_executor/models/qwen3_omni/qwen3_omni_moe_thinker.py",
        "at": "Qwen3MoeLLMModel.forward",
        "do": "replace-expression",
        "expression": 'hidden_states + deepstack_input_embeds[f"deepstack_input_embeds_{layer_idx}"]',
        "to": "hidden_states",
    }
    (ran,) = _wrong(edit, ["qwen3-omni-eager"], tmp_path)
    assert ran.state == "FAIL"
    assert ran.why.startswith("picture and sound: request 0: "), ran.why


def test_positions_that_the_thinker_gets_wrong_are_seen_in_its_words(tmp_path):
    edit = {
        "path": "vllm_omni/model_executor/models/qwen2_5_omni/qwen2_5_omni.py",
        "at": "Qwen2_5OmniForConditionalGeneration.get_mrope_input_positions",
        "do": "replace-expression",
        "expression": "llm_positions[:, context_len:seq_len]",
        "to": "llm_positions[:, context_len:seq_len] // 2",
    }
    (ran,) = _wrong(edit, ["qwen2.5-omni-eager"], tmp_path)
    assert ran.state == "FAIL"
    assert ": request 0: " in ran.why, ran.why


def test_codes_that_the_talker_forgets_are_heard_in_its_sound(tmp_path):
    edit = {
        "path": "vllm_omni/model_executor/models/fish_speech/fish_speech_slow_ar.py",
        "at": "FishSpeechSlowARForConditionalGeneration.talker_mtp",
        "do": "replace-expression",
        "expression": "inputs_embeds_out + codebook_sum",
        "to": "inputs_embeds_out",
    }
    (ran,) = _wrong(edit, ["fish-speech-eager"], tmp_path)
    assert ran.state == "FAIL"
    assert "'answer' is " in ran.why, ran.why


def test_a_runner_that_asks_no_models_sampler_is_seen_in_its_words(tmp_path):
    edit = {
        "path": "vllm_omni/platforms/npu/worker/npu_ar_model_runner.py",
        "at": "NPUARModelRunner._sample",
        "do": "replace-expression",
        "expression": 'getattr(self.model, "prefer_model_sampler", False)',
        "to": "False",
    }
    (ran,) = _wrong(edit, ["hunyuan-image3"], tmp_path)
    assert ran.state == "FAIL"
    assert ran.why.startswith("picture: request 0: tokens"), ran.why


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


def _wrong(edit, names, folder):
    """What the pipelines of the newest pair do with one edit of vllm-omni."""
    right = NEWEST.triple()
    wrong = Triple(edited(right.omni, [edit]), right.ascend, right.vllm)
    return run(wrong, chosen(names, ["pipelines"], omni=True), folder).outcomes[1:]
