# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Forward kernels of batch normalization: ``y = (x - mean) * rstd * weight + bias``.

In all kernels

    x_ptr, y_ptr: [A, C, B]; tile.py says how a program goes through them
    weight_ptr, bias_ptr, running_mean_ptr, running_var_ptr: [C] or None      mean_ptr, rstd_ptr: [C]
    C: channels      vectors: of B, or of C with COLUMNS      total: rows, or vectors, of a channel
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import is_last
from ..norm.statistics import from_bits
from .statistics import merge_parts, rstd_of, store_statistics
from .tile import begin_and_end, channels_of, first_elements, load_of_channels, over_tile, tile_at


@entry()
@triton.jit(do_not_specialize=["total", "eps_bits", "momentum_bits"])
def batch_norm_channels(
    x_ptr,
    weight_ptr,
    bias_ptr,
    running_mean_ptr,
    running_var_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    C,
    vectors,
    total,
    eps_bits,
    momentum_bits,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """Training where a program holds whole channels: x is read once."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    channels = channels_of(tl.program_id(0), CHANNELS, COLUMNS)
    begin, end = begin_and_end(0, total, total, VEC, COLUMNS, INT64_OFFSETS)
    offsets, mask = tile_at(begin, end, channels, C, vectors, BLOCK, VEC, COLUMNS)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
    count = tl.cast(end, ACC)
    mean = over_tile(x, COLUMNS) / count
    deviation = tl.where(mask, x - mean, 0.0)
    # What the mean was rounded by, all elements of a channel are off by.
    correction = over_tile(deviation, COLUMNS) / count
    mean += correction
    deviation = tl.where(mask, x - mean, 0.0)
    squares = over_tile(deviation * deviation, COLUMNS)
    rstd = store_statistics(
        mean,
        squares,
        channels,
        C,
        count,
        from_bits(eps_bits, ACC),
        from_bits(momentum_bits, ACC),
        mean_ptr,
        rstd_ptr,
        running_mean_ptr,
        running_var_ptr,
    )
    scale = rstd * load_of_channels(weight_ptr, channels, C, ACC, 1.0)
    bias = load_of_channels(bias_ptr, channels, C, ACC, 0.0)
    tl.store(y_ptr + offsets, deviation * scale + bias, mask=mask)


@entry()
@triton.jit(do_not_specialize=["total", "eps_bits", "momentum_bits", "SPLITS", "SLICE"])
def batch_norm_statistics(
    x_ptr,
    running_mean_ptr,
    running_var_ptr,
    mean_ptr,
    rstd_ptr,
    partial_ptr,
    counter_ptr,
    C,
    vectors,
    total,
    eps_bits,
    momentum_bits,
    SPLITS,
    SLICE,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Mean and rstd of channels that several programs share; the last of them merges what each has stored.

    partial_ptr: [2, SPLITS, C], counter_ptr: [blocks of channels]; both None where one program has its channels alone
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    UNIT: tl.constexpr = 1 if COLUMNS else VEC
    block = tl.program_id(0) // SPLITS
    part = tl.program_id(0) % SPLITS
    channels = channels_of(block, CHANNELS, COLUMNS)
    begin, end = begin_and_end(part, SLICE, total, VEC, COLUMNS, INT64_OFFSETS)
    offsets, mask = tile_at(begin, end, channels, C, vectors, BLOCK, VEC, COLUMNS)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
    pivot = over_tile(x, COLUMNS) / tl.cast(tl.minimum(end - begin, BLOCK), ACC)
    deviation = tl.where(mask, x - pivot, 0.0)
    sums = deviation
    squares = deviation * deviation
    for first in tl.range(begin + BLOCK, end, BLOCK):
        offsets, mask = tile_at(first, end, channels, C, vectors, BLOCK, VEC, COLUMNS)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
        deviation = tl.where(mask, x - pivot, 0.0)
        sums += deviation
        squares += deviation * deviation
    part_count = tl.cast(end - begin, ACC)
    shift = over_tile(sums, COLUMNS) / part_count
    part_squares = over_tile(squares, COLUMNS) - shift * shift * part_count
    part_squares = tl.where(part_squares < 0, 0.0, part_squares)
    eps = from_bits(eps_bits, ACC)
    momentum = from_bits(momentum_bits, ACC)
    count = tl.cast(total, ACC) * UNIT
    if partial_ptr is None:
        store_statistics(
            pivot + shift, part_squares, channels, C, count, eps, momentum,
            mean_ptr, rstd_ptr, running_mean_ptr, running_var_ptr,
        )  # fmt: skip
    else:
        places = partial_ptr + tl.cast(part, tl.int64) * C + channels
        origin = first_elements(x_ptr, channels, C, vectors, VEC, COLUMNS, ACC)
        tl.store(places, (pivot - origin) + shift, mask=channels < C)
        tl.store(places + tl.cast(SPLITS, tl.int64) * C, part_squares, mask=channels < C)
        if is_last(counter_ptr + block, SPLITS, "acq_rel"):
            columns = channels_of(block, CHANNELS, True)
            whole_mean, whole_squares = merge_parts(partial_ptr, columns, C, SPLITS, SLICE, total, UNIT, PARTS, ACC)
            whole_mean += first_elements(x_ptr, columns, C, vectors, VEC, COLUMNS, ACC)
            store_statistics(
                whole_mean, whole_squares, columns, C, count, eps, momentum,
                mean_ptr, rstd_ptr, running_mean_ptr, running_var_ptr,
            )  # fmt: skip


@entry()
@triton.jit(do_not_specialize=["total", "eps_bits", "SPLITS", "SLICE"])
def batch_norm_normalize(
    x_ptr,
    weight_ptr,
    bias_ptr,
    center_ptr,
    spread_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    C,
    vectors,
    total,
    eps_bits,
    SPLITS,
    SLICE,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    EVALUATION: tl.constexpr,
):
    """Of x that is read a second time, and of evaluation.

    center_ptr, spread_ptr: [C], mean and rstd in training, running mean and variance in evaluation, which stores mean
    and rstd
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    # Backwards: what the statistics' kernel has read last is still in L2.
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    block = program // SPLITS
    part = program % SPLITS
    channels = channels_of(block, CHANNELS, COLUMNS)
    begin, end = begin_and_end(part, SLICE, total, VEC, COLUMNS, INT64_OFFSETS)
    mean = load_of_channels(center_ptr, channels, C, ACC, 0.0)
    rstd = rstd_of(load_of_channels(spread_ptr, channels, C, ACC, 1.0), from_bits(eps_bits, ACC), EVALUATION)
    if EVALUATION:
        stored = (channels < C) & (part == 0)
        tl.store(mean_ptr + channels, mean, mask=stored)
        tl.store(rstd_ptr + channels, rstd, mask=stored)
    scale = rstd * load_of_channels(weight_ptr, channels, C, ACC, 1.0)
    bias = load_of_channels(bias_ptr, channels, C, ACC, 0.0)
    tiles = (end - begin + BLOCK - 1) // BLOCK
    for tile in tl.range(0, tiles):
        first = begin + (tiles - 1 - tile) * BLOCK
        offsets, mask = tile_at(first, end, channels, C, vectors, BLOCK, VEC, COLUMNS)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
        tl.store(y_ptr + offsets, (x - mean) * scale + bias, mask=mask)
