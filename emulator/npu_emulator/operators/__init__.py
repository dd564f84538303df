"""Reference implementations, in plain torch on the CPU, of the fused operators of torch_npu and vllm-ascend.

One module for each family. Each reference takes CPU tensors in the operator's own argument order and names,
checks the limits its documentation states, and computes in float32 where the device accumulates.
"""
