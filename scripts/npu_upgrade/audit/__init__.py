"""Finds drift between omni's NPU workers and the vllm-ascend and vllm below them, from source alone."""
