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
from ..norm.backward import input_gradient
from .forward import sum_group
from .tile import load_parameter, scaled, tile_of_group, tiles_of_group


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
            wdy = weighted(dy, weight)
            c1 = sum_group(xhat * wdy) / size
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


@triton.jit
def weighted(dy, weight):
    """weight * dy, rounded: were it fused with a later difference, dx of groups of one element would not be 0."""
    if len(weight) == 0:
        return dy
    else:
        return tl.fma(dy, weight[0], tl.full([], 0.0, dy.dtype))


@entry()
@triton.jit(do_not_specialize=["M"])
def group_norm_backward_loop(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    a_ptr,
    b_ptr,
    M,
    G,
    D,
    HW,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One program to a group: one pass for the sums and one, backwards, for dx.

    a_ptr, b_ptr: [N, C] or None
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    HW = HW // VEC * VEC  # HW itself, but the compiler now sees that VEC divides it
    for row in tl.range(tl.program_id(0), M, tl.num_programs(0)):
        row = tl.cast(row, tl.int64)
        start = row * D * HW
        first_channel = row % G * D
        mean = tl.load(mean_ptr + row).to(ACC)
        rstd = tl.load(rstd_ptr + row).to(ACC)
        c1 = tl.zeros([BLOCK_D, 1], ACC)
        c2 = tl.zeros([BLOCK_D, 1], ACC)
        for d in tl.range(0, (D - 1) // BLOCK_D + 1):
            first = d * BLOCK_D
            channels = first + tl.arange(0, BLOCK_D)[:, None]
            weight = load_parameter(weight_ptr, first_channel + channels, channels < D, ACC)
            a, b = channel_sums(
                dy_ptr + start, x_ptr + start, mean, rstd, first, 0, HW, D, HW, ACC, BLOCK_D, BLOCK_HW, STAGES
            )
            if a_ptr is not None:
                tl.store(a_ptr + row * D + channels, a, mask=channels < D)
            if b_ptr is not None:
                tl.store(b_ptr + row * D + channels, b, mask=channels < D)
            c1 += scaled(a, weight)
            c2 += scaled(b, weight)
        size = tl.cast(D, ACC) * HW
        group_c1 = tl.sum(c1) / size
        group_c2 = tl.sum(c2) / size
        last = tiles_of_group(D, HW, BLOCK_D, BLOCK_HW) - 1
        for i in tl.range(0, last + 1, num_stages=STAGES):
            store_gradient(
                dy_ptr + start, x_ptr + start, weight_ptr, dx_ptr + start, mean, rstd, group_c1, group_c2,
                first_channel, last - i, D, HW, ACC, BLOCK_D, BLOCK_HW,
            )  # fmt: skip


@triton.jit
def channel_sums(
    dy_ptr,
    x_ptr,
    mean,
    rstd,
    first,
    begin,
    end,
    D,
    HW,
    ACC: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    STAGES: tl.constexpr,
):
    """(a, b), [BLOCK_D, 1] each, of the elements [begin, end) of the channels from ``first`` on, of the group that
    dy_ptr and x_ptr point to."""
    a = tl.zeros([BLOCK_D, BLOCK_HW], ACC)
    b = tl.zeros([BLOCK_D, BLOCK_HW], ACC)
    within = tl.arange(0, BLOCK_D)[:, None]
    start = tl.cast(first, tl.int64) * HW + begin
    for i in tl.range(0, (end - begin - 1) // BLOCK_HW + 1, num_stages=STAGES):
        elements = i * BLOCK_HW + tl.arange(0, BLOCK_HW)[None, :]
        mask = (first + within < D) & (elements < end - begin)
        offsets = within * HW + elements
        dy = tl.load(dy_ptr + start + offsets, mask=mask, other=0.0).to(ACC)
        x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0).to(ACC)
        a += dy * ((x - mean) * rstd)
        b += dy
    return tl.sum(a, 1, keep_dims=True), tl.sum(b, 1, keep_dims=True)


@triton.jit
def store_gradient(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean,
    rstd,
    c1,
    c2,
    first_channel,
    i,
    D,
    HW,
    ACC: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
):
    """dx of tile i of the group that the pointers point to."""
    channels, start, offsets, mask = tile_of_group(i, D, HW, BLOCK_D, BLOCK_HW)
    weight = load_parameter(weight_ptr, first_channel + channels, channels < D, ACC)
    dy = tl.load(dy_ptr + start + offsets, mask=mask, other=0.0).to(ACC)
    xhat = (tl.load(x_ptr + start + offsets, mask=mask, other=0.0).to(ACC) - mean) * rstd
    tl.store(dx_ptr + start + offsets, input_gradient(xhat, weighted(dy, weight), rstd, c1, c2), mask=mask)


@entry()
@triton.jit(do_not_specialize=["SPLITS"])
def group_norm_backward_sums(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    a_ptr,
    b_ptr,
    partial_ptr,
    G,
    D,
    HW,
    SLICE,
    SPLITS,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Few, long groups, and gradients of weight and bias alone: the sums of a slice of SLICE elements of a block of
    channels.

    a_ptr, b_ptr: [N, SPLITS, C] or None
    partial_ptr: [N * G, parts, 2] or None, for dx: what each program has of a group's sums of weight * a and weight * b
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    HW = HW // VEC * VEC  # HW itself, but the compiler now sees that VEC divides it
    blocks = (D - 1) // BLOCK_D + 1
    split = tl.program_id(0) % SPLITS
    block = tl.program_id(0) // SPLITS % blocks
    row = tl.cast(tl.program_id(0) // SPLITS // blocks, tl.int64)
    start = row * D * HW
    mean = tl.load(mean_ptr + row).to(ACC)
    rstd = tl.load(rstd_ptr + row).to(ACC)
    first = block * BLOCK_D
    channels = first + tl.arange(0, BLOCK_D)[:, None]
    begin = tl.cast(split, tl.int64) * SLICE
    end = tl.minimum(begin + SLICE, HW)
    a, b = channel_sums(
        dy_ptr + start, x_ptr + start, mean, rstd, first, begin, end, D, HW, ACC, BLOCK_D, BLOCK_HW, STAGES
    )
    out = ((row // G) * SPLITS + split) * (G * D) + row % G * D + channels
    if a_ptr is not None:
        tl.store(a_ptr + out, a, mask=channels < D)
    if b_ptr is not None:
        tl.store(b_ptr + out, b, mask=channels < D)
    if partial_ptr is not None:
        weight = load_parameter(weight_ptr, row % G * D + channels, channels < D, ACC)
        place = tl.cast(tl.program_id(0), tl.int64) * 2
        tl.store(partial_ptr + place, tl.sum(scaled(a, weight)))
        tl.store(partial_ptr + place + 1, tl.sum(scaled(b, weight)))


@entry()
@triton.jit(do_not_specialize=["PARTS"])
def group_norm_backward_apply(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    partial_ptr,
    G,
    D,
    HW,
    PARTS,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    VEC: tl.constexpr,
):
    """dx of one tile of a group, from the sums of its parts.

    partial_ptr: [N * G, PARTS, 2]
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    HW = HW // VEC * VEC  # HW itself, but the compiler now sees that VEC divides it
    tiles = tiles_of_group(D, HW, BLOCK_D, BLOCK_HW)
    row = tl.cast(tl.program_id(0) // tiles, tl.int64)
    first_channel = row % G * D
    c1 = tl.zeros([BLOCK], ACC)
    c2 = tl.zeros([BLOCK], ACC)
    for i in tl.range(0, (PARTS - 1) // BLOCK + 1):
        part = i * BLOCK + tl.arange(0, BLOCK)
        places = partial_ptr + (row * PARTS + part) * 2
        c1 += tl.load(places, mask=part < PARTS, other=0.0)
        c2 += tl.load(places + 1, mask=part < PARTS, other=0.0)
    size = tl.cast(D, ACC) * HW
    mean = tl.load(mean_ptr + row).to(ACC)
    rstd = tl.load(rstd_ptr + row).to(ACC)
    start = row * D * HW
    store_gradient(
        dy_ptr + start, x_ptr + start, weight_ptr, dx_ptr + start, mean, rstd, tl.sum(c1) / size, tl.sum(c2) / size,
        first_channel, tl.program_id(0) % tiles, D, HW, ACC, BLOCK_D, BLOCK_HW,
    )  # fmt: skip
