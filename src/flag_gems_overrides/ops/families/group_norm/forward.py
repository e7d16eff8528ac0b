# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Forward kernels of group normalization.

Each group of an [N, C, HW] input, D = C / G channels of a sample, becomes ``y = (x - mean) * rstd * weight + bias``
with ``rstd = 1 / sqrt(variance + eps)`` and the weight and bias of the element's channel. Everything between load and
store is float32, or float64 for float64 input.

In all kernels

    x_ptr, y_ptr: [N, C, HW]    weight_ptr, bias_ptr: [C] or None    mean_ptr, rstd_ptr: [N, G]
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ..norm.statistics import from_bits, mean_to_store
from .tile import (
    affine,
    load_parameter,
    running_statistics,
    tile_of_group,
    tiles_of_group,
)


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def group_norm_tile(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    M,
    G,
    D,
    HW,
    eps_bits,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    VEC: tl.constexpr,
):
    """Small groups: each program holds BLOCK_M of the M = N * G groups."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    HW = HW // VEC * VEC  # HW itself, but the compiler now sees that VEC divides it
    row = tl.cast(tl.program_id(0), tl.int64) * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)[:, None, None]
    within = tl.arange(0, BLOCK_D)[None, :, None]
    elements = tl.arange(0, BLOCK_HW)[None, None, :]
    channel_mask = (rows < M) & (within < D)
    mask = channel_mask & (elements < HW)
    offsets = (rows * D + within) * HW + elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
    weight = load_parameter(weight_ptr, rows % G * D + within, channel_mask, ACC)
    bias = load_parameter(bias_ptr, rows % G * D + within, channel_mask, ACC)
    size = tl.cast(D, ACC) * HW
    mean = sum_group(x) / size
    deviation = tl.where(mask, x - mean, 0.0)
    variance = sum_group(deviation * deviation) / size
    rstd = tl.rsqrt(variance + from_bits(eps_bits, ACC))
    tl.store(mean_ptr + rows, mean_to_store(mean, variance), mask=rows < M)
    tl.store(rstd_ptr + rows, rstd, mask=rows < M)
    tl.store(y_ptr + offsets, affine(x, mean, rstd, weight, bias), mask=mask)


@triton.jit
def sum_group(x):
    """[groups, channels, elements] to [groups, 1, 1]."""
    return tl.sum(tl.sum(x, 2, keep_dims=True), 1, keep_dims=True)


@entry()
@triton.jit(do_not_specialize=["M", "eps_bits"])
def group_norm_loop(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    M,
    G,
    D,
    HW,
    size,
    eps_bits,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One program to a group: one pass for the statistics and one, backwards, for the result. The second finds in the
    cache what the first has read.

    M = N * G groups of size = D * HW elements.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    HW = HW // VEC * VEC  # HW itself, but the compiler now sees that VEC divides it
    size = size // VEC * VEC  # size itself, but the compiler now sees that VEC divides it
    eps = from_bits(eps_bits, ACC)
    for row in tl.range(tl.program_id(0), M, tl.num_programs(0)):
        start = tl.cast(row, tl.int64) * D * HW
        mean, squares = running_statistics(x_ptr + start, size, ACC, BLOCK_D * BLOCK_HW, STAGES)
        variance = squares / size
        rstd = tl.rsqrt(variance + eps)
        tl.store(mean_ptr + row, mean_to_store(mean, variance))
        tl.store(rstd_ptr + row, rstd)
        last = tiles_of_group(D, HW, BLOCK_D, BLOCK_HW) - 1
        for i in tl.range(0, last + 1, num_stages=STAGES):
            store_tile(
                x_ptr + start, weight_ptr, bias_ptr, y_ptr + start, mean, rstd, row % G * D, last - i, D, HW,
                ACC, BLOCK_D, BLOCK_HW,
            )  # fmt: skip


@triton.jit
def store_tile(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean,
    rstd,
    first_channel,
    i,
    D,
    HW,
    ACC: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
):
    """Tile i of the group that x_ptr and y_ptr point to."""
    channels, start, offsets, mask = tile_of_group(i, D, HW, BLOCK_D, BLOCK_HW)
    weight = load_parameter(weight_ptr, first_channel + channels, channels < D, ACC)
    bias = load_parameter(bias_ptr, first_channel + channels, channels < D, ACC)
    x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0).to(ACC)
    tl.store(y_ptr + start + offsets, affine(x, mean, rstd, weight, bias), mask=mask)


@entry()
@triton.jit(do_not_specialize=["SPLITS"])
def group_norm_partial_statistics(
    x_ptr,
    partial_mean_ptr,
    partial_squares_ptr,
    size,
    SLICE,
    SPLITS,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Few, long groups: the statistics of a slice of SLICE elements of one of them.

    partial_mean_ptr, partial_squares_ptr: [N * G, SPLITS]
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    size = size // VEC * VEC  # size itself, but the compiler now sees that VEC divides it
    row = tl.program_id(0) // SPLITS
    begin = tl.cast(tl.program_id(0) % SPLITS, tl.int64) * SLICE
    count = tl.minimum(size - begin, SLICE)
    mean, squares = running_statistics(x_ptr + tl.cast(row, tl.int64) * size + begin, count, ACC, BLOCK, STAGES)
    tl.store(partial_mean_ptr + tl.program_id(0), mean)
    tl.store(partial_squares_ptr + tl.program_id(0), squares)


@entry()
@triton.jit(do_not_specialize=["SPLITS", "eps_bits"])
def group_norm_apply(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    partial_mean_ptr,
    partial_squares_ptr,
    G,
    D,
    HW,
    size,
    SLICE,
    SPLITS,
    eps_bits,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    VEC: tl.constexpr,
):
    """One tile of a group, whose statistics are merged from those of its slices (Chan, Golub and LeVeque).

    partial_mean_ptr, partial_squares_ptr: [N * G, SPLITS]; BLOCK_S is at least SPLITS.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    HW = HW // VEC * VEC  # HW itself, but the compiler now sees that VEC divides it
    size = size // VEC * VEC  # size itself, but the compiler now sees that VEC divides it
    tiles = tiles_of_group(D, HW, BLOCK_D, BLOCK_HW)
    row = tl.cast(tl.program_id(0) // tiles, tl.int64)
    tile = tl.program_id(0) % tiles
    split = tl.arange(0, BLOCK_S)
    means = tl.load(partial_mean_ptr + row * SPLITS + split, mask=split < SPLITS, other=0.0)
    squares = tl.load(partial_squares_ptr + row * SPLITS + split, mask=split < SPLITS, other=0.0)
    count = tl.where(split < SPLITS, tl.minimum(size - split.to(tl.int64) * SLICE, SLICE), 0).to(ACC)
    mean = tl.sum(means * count, 0) / size
    deviation = tl.where(split < SPLITS, means - mean, 0.0)
    variance = tl.sum(squares + count * deviation * deviation, 0) / size
    rstd = tl.rsqrt(variance + from_bits(eps_bits, ACC))
    tl.store(mean_ptr + row, mean_to_store(mean, variance), mask=tile == 0)
    tl.store(rstd_ptr + row, rstd, mask=tile == 0)
    start = row * D * HW
    store_tile(
        x_ptr + start, weight_ptr, bias_ptr, y_ptr + start, mean, rstd, row % G * D, tile, D, HW,
        ACC, BLOCK_D, BLOCK_HW,
    )  # fmt: skip
