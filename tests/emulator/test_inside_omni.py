"""Real models inside vllm-omni on the emulated NPU: our runners answer what vllm-omni's own answer."""

import pytest

from bench.runners_models import EAGER, MODELS, play

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("machine")]


def test_speech_is_the_same_on_both_runners():
    (speech,) = (model for model in MODELS if model.name == "Qwen3-TTS")
    assert [(one.state, one.why) for one in play(speech, EAGER)] == [("equal in 8 parts", "")] * 2
