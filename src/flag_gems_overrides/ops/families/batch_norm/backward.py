# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code=assignment
"""Backward kernels of batch normalization. Of the N elements of a channel

    dbias = sum(dy)      dweight = sum(dy * (x - mean)) * rstd
    dx = (dy - dbias / N - (x - mean) * rstd * dweight / N) * rstd * weight, in evaluation dy * rstd * weight

In all kernels

    dy_ptr, x_ptr, dx_ptr: [A, C, B]; tile.py says how a program goes through them
    center_ptr, spread_ptr: [C], mean and rstd in training, running mean and variance in evaluation
    weight_ptr: [C] or None      dweight_ptr, dbias_ptr: [C] or None
    C: channels      vectors: of B, or of C with COLUMNS      total: rows, or vectors, of a channel
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import is_last
from ..norm.statistics import from_bits
from .statistics import rstd_of
from .tile import begin_and_end, channels_of, load_of_channels, over_tile, tile_at


@triton.jit
def store_gradients(sum_dy, sum_dyx, rstd, channels, C, dweight_ptr, dbias_ptr):
    if dweight_ptr is not None:
        tl.store(dweight_ptr + channels, sum_dyx * rstd, mask=channels < C)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + channels, sum_dy, mask=channels < C)


@triton.jit
def input_gradient(dy, deviation, sum_dy, sum_dyx, rstd, scale, count):
    return (dy - sum_dy / count - deviation * (rstd * rstd * (sum_dyx / count))) * scale


@entry()
@triton.jit(do_not_specialize=["total", "eps_bits"])
def batch_norm_backward_channels(
    dy_ptr,
    x_ptr,
    weight_ptr,
    center_ptr,
    spread_ptr,
    dx_ptr,
    dweight_ptr,
    dbias_ptr,
    C,
    vectors,
    total,
    eps_bits,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    EVALUATION: tl.constexpr,
):
    """All gradients where a program holds whole channels: x and dy are read once."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    channels = channels_of(tl.program_id(0), CHANNELS, COLUMNS)
    begin, end = begin_and_end(0, total, total, VEC, COLUMNS, INT64_OFFSETS)
    offsets, mask = tile_at(begin, end, channels, C, vectors, BLOCK, VEC, COLUMNS)
    mean = load_of_channels(center_ptr, channels, C, ACC, 0.0)
    rstd = rstd_of(load_of_channels(spread_ptr, channels, C, ACC, 1.0), from_bits(eps_bits, ACC), EVALUATION)
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(ACC)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
    deviation = x - mean
    sum_dy = over_tile(dy, COLUMNS)
    sum_dyx = over_tile(tl.where(mask, dy * deviation, 0.0), COLUMNS)
    store_gradients(sum_dy, sum_dyx, rstd, channels, C, dweight_ptr, dbias_ptr)
    if dx_ptr is not None:
        scale = rstd * load_of_channels(weight_ptr, channels, C, ACC, 1.0)
        if EVALUATION:
            dx = dy * scale
        else:
            dx = input_gradient(dy, deviation, sum_dy, sum_dyx, rstd, scale, tl.cast(end, ACC))
        tl.store(dx_ptr + offsets, dx, mask=mask)


@entry()
@triton.jit(do_not_specialize=["total", "eps_bits", "SPLITS", "SLICE"])
def batch_norm_backward_sums(
    dy_ptr,
    x_ptr,
    center_ptr,
    spread_ptr,
    sums_ptr,
    dweight_ptr,
    dbias_ptr,
    partial_ptr,
    counter_ptr,
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
    PARTS: tl.constexpr,
    EVALUATION: tl.constexpr,
):
    """The two sums of channels that several programs share; the last of them adds what each has stored, in order.

    sums_ptr: [2, C] or None, the sums for :func:`batch_norm_backward_input`
    partial_ptr: [2, SPLITS, C], counter_ptr: [blocks of channels]; both None where one program has its channels alone
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    block = tl.program_id(0) // SPLITS
    part = tl.program_id(0) % SPLITS
    channels = channels_of(block, CHANNELS, COLUMNS)
    begin, end = begin_and_end(part, SLICE, total, VEC, COLUMNS, INT64_OFFSETS)
    mean = load_of_channels(center_ptr, channels, C, ACC, 0.0)
    shape: tl.constexpr = [BLOCK, CHANNELS] if COLUMNS else [CHANNELS, BLOCK]
    sum_dy = tl.zeros(shape, ACC)
    sum_dyx = tl.zeros(shape, ACC)
    for first in tl.range(begin, end, BLOCK):
        offsets, mask = tile_at(first, end, channels, C, vectors, BLOCK, VEC, COLUMNS)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(ACC)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
        sum_dy += dy
        sum_dyx += tl.where(mask, dy * (x - mean), 0.0)
    part_dy = over_tile(sum_dy, COLUMNS)
    part_dyx = over_tile(sum_dyx, COLUMNS)
    eps = from_bits(eps_bits, ACC)
    if partial_ptr is None:
        store_sums(part_dy, part_dyx, channels, C, spread_ptr, eps, sums_ptr, dweight_ptr, dbias_ptr, EVALUATION)
    else:
        places = partial_ptr + tl.cast(part, tl.int64) * C + channels
        tl.store(places, part_dy, mask=channels < C)
        tl.store(places + tl.cast(SPLITS, tl.int64) * C, part_dyx, mask=channels < C)
        if is_last(counter_ptr + block, SPLITS, "acq_rel"):
            columns = channels_of(block, CHANNELS, True)
            whole_dy = tl.zeros(columns.shape, ACC)
            whole_dyx = tl.zeros(columns.shape, ACC)
            for first_part in tl.range(0, SPLITS, PARTS):
                parts = first_part + tl.arange(0, PARTS)[:, None]
                of_parts = (parts < SPLITS) & (columns < C)
                their_places = partial_ptr + tl.cast(parts, tl.int64) * C + columns
                whole_dy += tl.sum(tl.load(their_places, mask=of_parts, other=0.0), 0, keep_dims=True)
                their_places += tl.cast(SPLITS, tl.int64) * C
                whole_dyx += tl.sum(tl.load(their_places, mask=of_parts, other=0.0), 0, keep_dims=True)
            store_sums(whole_dy, whole_dyx, columns, C, spread_ptr, eps, sums_ptr, dweight_ptr, dbias_ptr, EVALUATION)


@triton.jit
def store_sums(
    sum_dy, sum_dyx, channels, C, spread_ptr, eps, sums_ptr, dweight_ptr, dbias_ptr, EVALUATION: tl.constexpr
):
    rstd = rstd_of(load_of_channels(spread_ptr, channels, C, sum_dy.dtype, 1.0), eps, EVALUATION)
    store_gradients(sum_dy, sum_dyx, rstd, channels, C, dweight_ptr, dbias_ptr)
    if sums_ptr is not None:
        tl.store(sums_ptr + channels, sum_dy, mask=channels < C)
        tl.store(sums_ptr + C + channels, sum_dyx, mask=channels < C)


@entry()
@triton.jit(do_not_specialize=["total", "eps_bits", "SPLITS", "SLICE"])
def batch_norm_backward_input(
    dy_ptr,
    x_ptr,
    weight_ptr,
    center_ptr,
    spread_ptr,
    sums_ptr,
    dx_ptr,
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
    """dx, from the sums in training; evaluation does not read x.

    x_ptr: None in evaluation      sums_ptr: [2, C], None in evaluation
    """
    ACC: tl.constexpr = tl.float64 if dy_ptr.dtype.element_ty == tl.float64 else tl.float32
    # Backwards: what the sums' kernel has read last is still in L2.
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    block = program // SPLITS
    part = program % SPLITS
    channels = channels_of(block, CHANNELS, COLUMNS)
    begin, end = begin_and_end(part, SLICE, total, VEC, COLUMNS, INT64_OFFSETS)
    rstd = rstd_of(load_of_channels(spread_ptr, channels, C, ACC, 1.0), from_bits(eps_bits, ACC), EVALUATION)
    scale = rstd * load_of_channels(weight_ptr, channels, C, ACC, 1.0)
    if not EVALUATION:
        mean = load_of_channels(center_ptr, channels, C, ACC, 0.0)
        count = tl.cast(total, ACC) * (1 if COLUMNS else VEC)
        sum_dy = load_of_channels(sums_ptr, channels, C, ACC, 0.0)
        sum_dyx = tl.load(sums_ptr + C + channels, mask=channels < C, other=0.0)
    tiles = (end - begin + BLOCK - 1) // BLOCK
    for tile in tl.range(0, tiles):
        first = begin + (tiles - 1 - tile) * BLOCK
        offsets, mask = tile_at(first, end, channels, C, vectors, BLOCK, VEC, COLUMNS)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(ACC)
        if EVALUATION:
            dx = dy * scale
        else:
            x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
            dx = input_gradient(dy, x - mean, sum_dy, sum_dyx, rstd, scale, count)
        tl.store(dx_ptr + offsets, dx, mask=mask)
