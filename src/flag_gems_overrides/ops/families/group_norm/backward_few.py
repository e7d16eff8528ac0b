# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Backward kernel of little data, which takes one launch for all gradients (backward.py has the formulas)."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from ..norm.backward import add_pairs, input_gradient, weighted
from .tile import load_parameter


@entry()
@triton.jit(do_not_specialize=["N"])
def group_norm_backward_few(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_ptr,
    dbias_ptr,
    N,
    G,
    D,
    HW,
    BLOCK_G: tl.constexpr,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    CHANNELS_VEC: tl.constexpr,
):
    """All three gradients in one launch, by two kinds of programs that know nothing of each other.

    The first have BLOCK_G whole groups each, of no more than BLOCK elements, for dx; the others BLOCK_C channels, for
    dweight and dbias, of BLOCK_N samples at a time. x and dy are loaded twice, and are small enough for L2.

    VEC divides a group, CHANNELS_VEC a channel, or, where these have one element, a sample.
    dweight_ptr, dbias_ptr: [C] or None
    """
    program = tl.program_id(0)
    group_programs = (N * G - 1) // BLOCK_G + 1
    if program < group_programs:
        gradient_of_groups(
            dy_ptr,
            x_ptr,
            weight_ptr,
            mean_ptr,
            rstd_ptr,
            dx_ptr,
            program * BLOCK_G,
            N * G,
            G,
            D,
            HW,
            BLOCK_G,
            BLOCK,
            VEC,
        )
    else:
        sums_of_channels(
            dy_ptr,
            x_ptr,
            mean_ptr,
            rstd_ptr,
            dweight_ptr,
            dbias_ptr,
            (program - group_programs) * BLOCK_C,
            N,
            G,
            D,
            HW,
            BLOCK_N,
            BLOCK_C,
            BLOCK_HW,
            CHANNELS_VEC,
        )


@triton.jit
def gradient_of_groups(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    first,
    groups,
    G,
    D,
    HW,
    BLOCK_G: tl.constexpr,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
):
    """dx of the groups from ``first`` on."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    size = D * HW // VEC * VEC  # the compiler sees that VEC divides it
    rows = first + tl.arange(0, BLOCK_G)[:, None]
    elements = tl.arange(0, BLOCK)[None, :]
    mask = (rows < groups) & (elements < size)
    offsets = rows * size + elements
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(ACC)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
    mean = tl.load(mean_ptr + rows, mask=rows < groups, other=0.0).to(ACC)
    rstd = tl.load(rstd_ptr + rows, mask=rows < groups, other=0.0).to(ACC)
    weight = load_parameter(weight_ptr, rows % G * D + elements // HW, mask, ACC)
    xhat = (x - mean) * rstd
    wdy = weighted(dy, weight, True)
    c1, c2 = tl.reduce((product(xhat, wdy), wdy), 1, add_pairs, keep_dims=True)
    tl.store(dx_ptr + offsets, input_gradient(xhat, wdy, rstd, c1 / size, c2 / size), mask=mask)


@triton.jit
def sums_of_channels(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    dweight_ptr,
    dbias_ptr,
    first_channel,
    N,
    G,
    D,
    HW,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    VEC: tl.constexpr,
):
    """dweight and dbias of the channels from ``first_channel`` on, of no more than BLOCK_HW elements."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    C = G * D
    if BLOCK_HW == 1:
        C = C // VEC * VEC
    else:
        HW = HW // VEC * VEC
    channels = first_channel + tl.arange(0, BLOCK_C)[None, :, None]
    elements = tl.arange(0, BLOCK_HW)[None, None, :]
    a = tl.zeros([BLOCK_N, BLOCK_C, BLOCK_HW], ACC)
    b = tl.zeros([BLOCK_N, BLOCK_C, BLOCK_HW], ACC)
    for first in tl.range(0, N, BLOCK_N):
        samples = first + tl.arange(0, BLOCK_N)[:, None, None]
        of_channels = (samples < N) & (channels < C)
        mask = of_channels & (elements < HW)
        offsets = (samples * C + channels) * HW + elements
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(ACC)
        b += dy
        if dweight_ptr is not None:
            x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
            groups = samples * G + channels // D
            mean = tl.load(mean_ptr + groups, mask=of_channels, other=0.0).to(ACC)
            rstd = tl.load(rstd_ptr + groups, mask=of_channels, other=0.0).to(ACC)
            a += product(dy, (x - mean) * rstd)
    a, b = tl.reduce((a, b), 2, add_pairs)
    a, b = tl.reduce((a, b), 0, add_pairs)
    channels = first_channel + tl.arange(0, BLOCK_C)
    if dweight_ptr is not None:
        tl.store(dweight_ptr + channels, a, mask=channels < C)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + channels, b, mask=channels < C)
