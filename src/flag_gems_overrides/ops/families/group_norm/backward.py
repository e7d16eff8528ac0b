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
from triton.language.extra.cuda import gdc_launch_dependents

from ...launch.prepared import entry
from ...launch.products import product
from ..norm.backward import add_pairs, input_gradient, weighted
from .tile import load_parameter


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
    ONE_TILE: tl.constexpr,
    STAGES: tl.constexpr,
    CHUNKS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Small groups: each program holds BLOCK_G whole groups of BLOCK_N samples at a time, the same groups of all its
    samples, so that its sums for weight and bias stay in registers. dx_ptr may be None. With ONE_TILE there is no loop,
    before which a program would wait for its parameters.
    A channel's elements are CHUNKS times BLOCK_HW.

    a_ptr, b_ptr: [programs / blocks of groups, C] or None; PDL: see norm/backward.py
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    if PDL:
        gdc_launch_dependents()
    HW = HW // VEC * VEC  # HW itself, but the compiler now sees that VEC divides it
    blocks = (G - 1) // BLOCK_G + 1
    first_group = tl.program_id(0) % blocks * BLOCK_G
    rows = tl.arange(0, BLOCK_N * BLOCK_G)[:, None, None]
    samples = tl.cast(rows // BLOCK_G, tl.int64)
    groups = first_group + rows % BLOCK_G
    within = tl.arange(0, BLOCK_D)[None, :, None]
    channel_mask = (groups < G) & (within < D)
    weight = load_parameter(weight_ptr, groups * D + within, channel_mask, ACC)
    offsets = (samples * G * D + groups * D + within) * HW
    a = tl.zeros([BLOCK_N * BLOCK_G, BLOCK_D, BLOCK_HW], ACC)
    b = tl.zeros([BLOCK_N * BLOCK_G, BLOCK_D, BLOCK_HW], ACC)
    size = tl.cast(D, ACC) * HW
    first, step = tl.program_id(0) // blocks * BLOCK_N, tl.num_programs(0) // blocks * BLOCK_N
    if STAGES > 1:
        # Loads of less than 4 bytes are not pipelined: statistics are loaded an iteration ahead.
        next_mean, next_rstd = statistics(mean_ptr, rstd_ptr, tl.cast(first, tl.int64), samples, groups, N, G)
    for tile in tl.range(0 if ONE_TILE else first, 1 if ONE_TILE else N, 1 if ONE_TILE else step, num_stages=STAGES):
        n = first if ONE_TILE else tile
        if STAGES > 1:
            mean, rstd = next_mean.to(ACC), next_rstd.to(ACC)
            next_mean, next_rstd = statistics(mean_ptr, rstd_ptr, tl.cast(n, tl.int64) + step, samples, groups, N, G)
        else:
            mean, rstd = statistics(mean_ptr, rstd_ptr, tl.cast(n, tl.int64), samples, groups, N, G)
            mean, rstd = mean.to(ACC), rstd.to(ACC)
        mask = (n + samples < N) & channel_mask
        start = tl.cast(n, tl.int64) * G * D * HW
        dys = load_chunks(dy_ptr + start, offsets, mask, HW, BLOCK_HW, CHUNKS)
        xs = load_chunks(x_ptr + start, offsets, mask, HW, BLOCK_HW, CHUNKS)
        xhats = ()
        wdys = ()
        for c in tl.static_range(CHUNKS):
            dy = dys[c].to(ACC)
            xhat = (xs[c].to(ACC) - mean) * rstd
            a += dy * xhat
            b += dy
            wdy = weighted(dy, weight, True)
            xhats = xhats + (xhat,)
            wdys = wdys + (wdy,)
            if c == 0:
                products, terms = product(xhat, wdy), wdy
            else:
                products, terms = products + xhat * wdy, terms + wdy
        if dx_ptr is not None:
            c1, c2 = sums_of_groups(products, terms)
            for c in tl.static_range(CHUNKS):
                elements = c * BLOCK_HW + tl.arange(0, BLOCK_HW)[None, None, :]
                dx = input_gradient(xhats[c], wdys[c], rstd, c1 / size, c2 / size)
                tl.store(dx_ptr + start + (offsets + elements), dx, mask=mask & (elements < HW))
    groups = first_group + tl.arange(0, BLOCK_G)[:, None]
    within = tl.arange(0, BLOCK_D)[None, :]
    out = tl.cast(tl.program_id(0) // blocks, tl.int64) * G * D + groups * D + within
    a, b = sums_of_samples(a, b, BLOCK_N, BLOCK_G)
    if a_ptr is not None:
        tl.store(a_ptr + out, a, mask=(groups < G) & (within < D))
    if b_ptr is not None:
        tl.store(b_ptr + out, b, mask=(groups < G) & (within < D))


@triton.jit
def load_chunks(ptr, offsets, mask, HW, BLOCK_HW: tl.constexpr, CHUNKS: tl.constexpr):
    """CHUNKS tiles of BLOCK_HW elements of each channel, one after the other."""
    chunks = ()
    for c in tl.static_range(CHUNKS):
        elements = c * BLOCK_HW + tl.arange(0, BLOCK_HW)[None, None, :]
        chunks = chunks + (tl.load(ptr + (offsets + elements), mask=mask & (elements < HW), other=0.0),)
    return chunks


@triton.jit
def statistics(mean_ptr, rstd_ptr, first, samples, groups, N, G):
    """(mean, rstd) of these groups of the samples from ``first`` on."""
    places = first * G + samples * G + groups
    mask = (first + samples < N) & (groups < G)
    return tl.load(mean_ptr + places, mask=mask, other=0.0), tl.load(rstd_ptr + places, mask=mask, other=0.0)


@triton.jit
def sums_of_groups(a, b):
    """[groups, channels, elements] to [groups, 1, 1], of both: warps wait for each other as often as for one."""
    a, b = tl.reduce((a, b), 2, add_pairs)
    if a.shape[1] == 1:
        return a[:, :, None], b[:, :, None]
    else:
        a, b = tl.reduce((a, b), 1, add_pairs)
        return a[:, None, None], b[:, None, None]


@triton.jit
def sums_of_samples(a, b, BLOCK_N: tl.constexpr, BLOCK_G: tl.constexpr):
    """[BLOCK_N * BLOCK_G, channels, elements] to [BLOCK_G, channels], of both."""
    a, b = tl.reduce((a, b), 2, add_pairs)
    CHANNELS: tl.constexpr = a.shape[1]
    a = tl.reshape(a, [BLOCK_N, BLOCK_G, CHANNELS])
    b = tl.reshape(b, [BLOCK_N, BLOCK_G, CHANNELS])
    return tl.reduce((a, b), 0, add_pairs)
