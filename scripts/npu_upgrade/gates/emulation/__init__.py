"""The emulated dry-run: the real runners, torch_npu and vllm-ascend on a CPU, on emulated CANN."""
