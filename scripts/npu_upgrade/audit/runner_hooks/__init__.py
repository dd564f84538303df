"""Which hooks of vLLM and vllm-ascend the runners in ``runners/`` rely on, read from released sources."""
