"""Stages of vllm-omni over a platform's runners: what vllm-omni could have in place of copies."""
