"""Omni model runners, workers and schedulers that extend vLLM and vllm-ascend and copy nothing of them."""
