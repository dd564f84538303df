"""Gloo in place of HCCL: the backend named "hccl" of torch.distributed, for NPU and CPU tensors."""

from __future__ import annotations

import torch.distributed as dist


def install() -> None:
    """Let process groups with the backend "hccl" be gloo groups over the same memory."""
    if not dist.is_available():
        return
    dist.Backend.register_backend("hccl", _gloo, devices=["npu", "cpu"])
    # asked for while a model is built; operators that communicate by this name have no reference
    dist.ProcessGroupGloo.get_hccl_comm_name = lambda group, rank: (
        f"emulated_{group.rank()}_of_{group.size()}"
    )


def _gloo(store, rank, size, timeout):
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
