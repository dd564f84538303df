"""Triton kernels on the emulated NPU: a backend that never compiles, and the interpreter."""
