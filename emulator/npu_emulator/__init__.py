"""Emulated CANN: the unmodified torch_npu, vllm-ascend and vllm-omni on an x86-64 machine without an NPU.

It shows that Python and the operators' schemas hold together on the paths a run reaches. It says nothing
about kernels, memory, HCCL or speed; every result it helps to is labelled "emulated dry-run".

Used inside an environment that has torch and torch_npu: ``build`` makes the native parts once, ``launch``
gives the variables a process needs, and torch itself then calls ``autoload`` in every process.
"""
