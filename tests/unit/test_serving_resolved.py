"""What a server's configuration and log tell of its settings."""

from __future__ import annotations

from pathlib import Path

from npu_upgrade.gates.serving.resolved import kv_cache, logged, resolved


def test_settings_from_the_whole_configuration() -> None:
    config = {
        "model_config": {"dtype": "torch.bfloat16", "max_model_len": 64, "multimodal_config": None},
        "parallel_config": {"tensor_parallel_size": 2},
        "load_config": {"load_format": "dummy"},
    }
    found = resolved(config)
    assert found == {
        "dtype": "bfloat16", "max_model_len": 64, "is_multimodal": False,
        "tensor_parallel_size": 2, "load_format": "dummy",
    }  # fmt: skip
    assert resolved({}) == {}


def test_settings_from_the_log_when_the_server_does_not_tell(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "(EngineCore pid=1) INFO 01-01 00:00:00 [core.py:1] Initializing a V1 LLM engine (v9) with config: "
        "model='/m, load_format=x', dtype=torch.float16, max_seq_len=512, load_format=auto, "
        "tensor_parallel_size=2, quantization=None, enforce_eager=True, device_config=npu, "
        "other=Config(dtype='int8')\n"
        "(EngineCore pid=1) INFO 01-01 00:00:01 [kv.py:2] NPU KV cache size: 1,524 tokens, "
        "Maximum concurrency for 512 tokens per request: 2.98x\n"
    )
    found = logged(log)
    assert found["dtype"] == "float16"
    assert (found["max_model_len"], found["tensor_parallel_size"]) == (512, 2)
    assert (found["quantization"], found["enforce_eager"], found["device"]) == (None, True, "npu")
    assert kv_cache(log) == {"tokens": 1524, "per_request": 512, "max_concurrency": 2.98}
    log.write_text("nothing\n")
    assert logged(log) == {}
    assert kv_cache(log) is None
