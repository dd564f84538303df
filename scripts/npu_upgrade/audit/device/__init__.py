"""What belongs to one device: CUDA names, forward contexts, what vllm-ascend has in their place."""
