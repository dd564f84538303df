"""Triton kernels of vLLM and vllm-ascend on the emulated NPU: a backend that never compiles, and an interpreter."""
