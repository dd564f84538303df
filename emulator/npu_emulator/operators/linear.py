"""Matrix products and layout changes around them."""

from __future__ import annotations

from npu_emulator.operators.registry import reference
from npu_emulator.problems import require


@reference("npu::npu_format_cast")
def npu_format_cast(x, acl_format, *, customize_dtype=None, input_dtype=None):
    # private layouts hold the same values: here every format is the plain one
    return x


ACL_FORMAT_ND = 2  # as torch_npu numbers layouts; every tensor here has the plain one


@reference("npu::get_npu_format")
def get_npu_format(x):
    return ACL_FORMAT_ND


@reference("atb::_npu_matmul_add_fp32")
def npu_matmul_add_fp32(x, weight, c):
    require(
        x.shape[0] == weight.shape[0],
        "_npu_matmul_add_fp32",
        f"x and weight have {x.shape[0]} and {weight.shape[0]} rows",
    )
    c.add_(x.float().t() @ weight.float())
