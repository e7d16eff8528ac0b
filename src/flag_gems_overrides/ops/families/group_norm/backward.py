# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Backward kernels of group normalization.

With ``xhat = (x - mean) * rstd``, and for each channel of each sample ``a = sum(dy * xhat)`` and ``b = sum(dy)``,

    dx = (weight * dy - (xhat * c1 + c2)) * rstd    c1, c2 = sums of weight * a, weight * b over the group, / size
    dweight, dbias = sums of a, b over the samples

so that x and dy are read once for all sums, and once more, mostly from a cache, for dx; not even that where groups are
small. Everything between load and store is float32, or float64 for float64 input. A masked element has dy = 0, so that
all its products are 0.

In all kernels

    dy_ptr, x_ptr: [N, C, HW]   weight_ptr: [C] or None   mean_ptr, rstd_ptr: [N, G]   dx_ptr: [N, C, HW]
    a_ptr, b_ptr: [rows, C] with any number of rows that are to be added, or None where no sum is asked for
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from ..norm.backward import input_gradient, weighted
from .tile import load_parameter, sum_group


@entry()
@triton.jit(do_not_specialize=["N"])
def group_norm_backward_tile(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    a_ptr,
    b_ptr,
    N,
    G,
    D,
    HW,
    BLOCK_N: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Small groups: each program holds BLOCK_G whole groups of BLOCK_N samples at a time, the same groups of all its
    samples, so that its sums for weight and bias stay in registers. dx_ptr may be None.

    a_ptr, b_ptr: [programs / blocks of groups, C] or None
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    HW = HW // VEC * VEC  # HW itself, but the compiler now sees that VEC divides it
    blocks = (G - 1) // BLOCK_G + 1
    first_group = tl.program_id(0) % blocks * BLOCK_G
    rows = tl.arange(0, BLOCK_N * BLOCK_G)[:, None, None]
    samples = tl.cast(rows // BLOCK_G, tl.int64)
    groups = first_group + rows % BLOCK_G
    within = tl.arange(0, BLOCK_D)[None, :, None]
    elements = tl.arange(0, BLOCK_HW)[None, None, :]
    channels = groups * D + within
    channel_mask = (groups < G) & (within < D)
    offsets = (samples * G * D + channels) * HW + elements
    weight = load_parameter(weight_ptr, channels, channel_mask, ACC)
    a = tl.zeros([BLOCK_N * BLOCK_G, BLOCK_D, BLOCK_HW], ACC)
    b = tl.zeros([BLOCK_N * BLOCK_G, BLOCK_D, BLOCK_HW], ACC)
    size = tl.cast(D, ACC) * HW
    first, step = tl.program_id(0) // blocks * BLOCK_N, tl.num_programs(0) // blocks * BLOCK_N
    for n in tl.range(first, N, step, num_stages=STAGES):
        row_mask = (n + samples < N) & (groups < G)
        mask = row_mask & (within < D) & (elements < HW)
        sample = tl.cast(n, tl.int64) * G
        start = sample * D * HW
        mean = tl.load(mean_ptr + sample + samples * G + groups, mask=row_mask, other=0.0).to(ACC)
        rstd = tl.load(rstd_ptr + sample + samples * G + groups, mask=row_mask, other=0.0).to(ACC)
        dy = tl.load(dy_ptr + start + offsets, mask=mask, other=0.0).to(ACC)
        xhat = (tl.load(x_ptr + start + offsets, mask=mask, other=0.0).to(ACC) - mean) * rstd
        a += dy * xhat
        b += dy
        if dx_ptr is not None:
            wdy = weighted(dy, weight, True)
            c1 = sum_group(product(xhat, wdy)) / size
            c2 = sum_group(wdy) / size
            tl.store(dx_ptr + start + offsets, input_gradient(xhat, wdy, rstd, c1, c2), mask=mask)
    groups = first_group + tl.arange(0, BLOCK_G)[:, None]
    within = tl.arange(0, BLOCK_D)[None, :]
    out = tl.cast(tl.program_id(0) // blocks, tl.int64) * G * D + groups * D + within
    if a_ptr is not None:
        tl.store(a_ptr + out, sum_samples(a, BLOCK_N, BLOCK_G), mask=(groups < G) & (within < D))
    if b_ptr is not None:
        tl.store(b_ptr + out, sum_samples(b, BLOCK_N, BLOCK_G), mask=(groups < G) & (within < D))


@triton.jit
def sum_samples(x, BLOCK_N: tl.constexpr, BLOCK_G: tl.constexpr):
    """[BLOCK_N * BLOCK_G, channels, elements] to [BLOCK_G, channels]."""
    of_channels = tl.sum(x, 2)
    return tl.sum(tl.reshape(of_channels, [BLOCK_N, BLOCK_G, of_channels.shape[1]]), 0)
