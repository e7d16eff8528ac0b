# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Backward kernels of batch normalization that read memory as it lies, in training. flat.py says what their parameters
are, backward.py has the formulas, and norm/backward.py says what PDL is."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ...launch.prepared import entry
from .backward import input_gradient, store_gradients
from .flat import (
    block_of,
    load_tile,
    of_places,
    part_of_block,
    places_in_rest,
    places_of_block,
    places_of_channels,
    row_of_part,
    row_of_tile,
)
from .tile import load_of_channels


@entry()
@triton.jit(do_not_specialize=["tiles", "rest", "GROUP", "SLICE"])
def batch_norm_backward_flat_sums(
    dy_ptr,
    x_ptr,
    mean_ptr,
    columns_ptr,
    partial_ptr,
    C,
    B,
    width,
    per_row,
    tiles,
    rest,
    GROUP,
    SLICE,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_E: tl.constexpr,
    UNIT: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """The sums of a part of a block, of UNIT places each: VEC, if a vector is of one channel, or 1."""
    if PDL:
        gdc_launch_dependents()
    ACC: tl.constexpr = partial_ptr.dtype.element_ty
    block, part, begin, end, with_rest = part_of_block(tl.program_id(0), GROUP, SLICE, tiles)
    start, mask = block_of(block, width, LANES, VEC)
    places = places_of_block(LANES, VEC)
    mean = of_places(mean_ptr, (start + places) // B % C, ACC, 0.0)
    sum_dy = tl.zeros([LANES, VEC], ACC)
    sum_dyx = tl.zeros([LANES, VEC], ACC)
    for tile in tl.range(begin, end, num_stages=STAGES):
        dys = load_tile(dy_ptr, tile, start, width, mask, ROWS, LANES, VEC)
        xs = load_tile(x_ptr, tile, start, width, mask, ROWS, LANES, VEC)
        for r in tl.static_range(ROWS):
            sum_dy += dys[r].to(ACC)
            sum_dyx += dys[r].to(ACC) * (xs[r].to(ACC) - mean)
    if with_rest & (rest > 0):
        for r in tl.static_range(ROWS):
            offsets, rest_mask = places_in_rest(places, mask, start, r, tiles, rest, width, ROWS)
            dy = tl.load(dy_ptr + offsets, mask=rest_mask, other=0.0).to(ACC)
            x = tl.load(x_ptr + offsets, mask=rest_mask, other=0.0).to(ACC)
            sum_dy += dy
            # Where there is nothing dy is 0, but the mean may be infinite.
            sum_dyx += tl.where(rest_mask, dy * (x - mean), 0.0)
    if UNIT > 1:
        sum_dy = tl.sum(sum_dy, 1, keep_dims=True)
        sum_dyx = tl.sum(sum_dyx, 1, keep_dims=True)
    units = places_of_block(LANES, VEC // UNIT)
    if columns_ptr is None:
        row = width // UNIT
        partial_ptr += row_of_part(part, start // UNIT, row, VEC // UNIT)
        tl.store(partial_ptr + units, sum_dy, mask=mask)
        tl.store(partial_ptr + row_of_part(GROUP, 0, row, VEC // UNIT) + units, sum_dyx, mask=mask)
    else:
        COUNT: tl.constexpr = LANES * VEC // UNIT
        columns_ptr += tl.cast(tl.program_id(0), tl.int64) * 2 * COUNT
        tl.store(columns_ptr + units, sum_dy)
        tl.store(columns_ptr + COUNT + units, sum_dyx)
        tl.debug_barrier()
        add_places(
            columns_ptr, COUNT, partial_ptr + part * C, GROUP * C, C, B // UNIT, per_row // UNIT, BLOCK_C, BLOCK_E
        )


@triton.jit
def add_places(
    columns_ptr,
    COUNT: tl.constexpr,
    partial_ptr,
    plane,
    C,
    B,
    per_row,
    BLOCK_C: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Both sums of each channel's places.

    columns_ptr: [2, COUNT]      partial_ptr: [2, GROUP, C], where this program's part is; ``plane`` is GROUP * C
    """
    ACC: tl.constexpr = columns_ptr.dtype.element_ty
    for first in tl.range(0, C, BLOCK_C):
        channels = first + tl.arange(0, BLOCK_C)[:, None]
        sum_dy = tl.zeros([BLOCK_C, BLOCK_E], ACC)
        sum_dyx = tl.zeros([BLOCK_C, BLOCK_E], ACC)
        for e in tl.range(0, per_row, BLOCK_E):
            entries = e + tl.arange(0, BLOCK_E)[None, :]
            mask = (channels < C) & (entries < per_row)
            places = columns_ptr + places_of_channels(channels, entries, C, B)
            sum_dy += tl.load(places, mask=mask, other=0.0)
            sum_dyx += tl.load(places + COUNT, mask=mask, other=0.0)
        tl.store(partial_ptr + channels, tl.sum(sum_dy, 1, keep_dims=True), mask=channels < C)
        tl.store(partial_ptr + plane + channels, tl.sum(sum_dyx, 1, keep_dims=True), mask=channels < C)


@entry()
@triton.jit(do_not_specialize=["GROUP"])
def batch_norm_backward_flat_merge(
    partial_ptr,
    rstd_ptr,
    dweight_ptr,
    dbias_ptr,
    sums_ptr,
    C,
    B,
    width,
    per_row,
    GROUP,
    CHANNELS: tl.constexpr,
    ENTRIES: tl.constexpr,
    PDL: tl.constexpr,
):
    """The gradients of weight and bias of CHANNELS channels, and the sums for dx.

    partial_ptr: [2, GROUP, width], of whose places ``per_row`` are of each channel: for sums of channels these are
        themselves the places, C of them, and B is 1
    dweight_ptr, dbias_ptr: [C] or None      sums_ptr: [2, C], of dy and of dy * (x - mean), or None
    """
    ACC: tl.constexpr = partial_ptr.dtype.element_ty
    channels = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    entries_dy = tl.zeros([ENTRIES, CHANNELS], ACC)
    entries_dyx = tl.zeros([ENTRIES, CHANNELS], ACC)
    rstd = load_of_channels(rstd_ptr, channels, C, ACC, 1.0)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    for first in tl.range(0, GROUP * per_row, ENTRIES):
        entries = first + tl.arange(0, ENTRIES)[:, None]
        parts = entries // per_row
        mask = (parts < GROUP) & (channels < C)
        places = parts * width + places_of_channels(channels, entries - parts * per_row, C, B)
        entries_dy += tl.load(partial_ptr + places, mask=mask, other=0.0)
        entries_dyx += tl.load(partial_ptr + GROUP * width + places, mask=mask, other=0.0)
    sum_dy = tl.sum(entries_dy, 0, keep_dims=True)
    sum_dyx = tl.sum(entries_dyx, 0, keep_dims=True)
    store_gradients(sum_dy, sum_dyx, rstd, channels, C, dweight_ptr, dbias_ptr)
    if sums_ptr is not None:
        tl.store(sums_ptr + channels, sum_dy, mask=channels < C)
        tl.store(sums_ptr + C + channels, sum_dyx, mask=channels < C)


@entry()
@triton.jit(do_not_specialize=["tiles", "rest", "GROUP", "SLICE", "total"])
def batch_norm_backward_flat_apply(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    sums_ptr,
    C,
    B,
    width,
    tiles,
    rest,
    total,
    GROUP,
    SLICE,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """dx, backwards. sums_ptr: [2, C]; total: elements of a channel"""
    ACC: tl.constexpr = sums_ptr.dtype.element_ty
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    block, _, begin, end, with_rest = part_of_block(program, GROUP, SLICE, tiles)
    start, mask = block_of(block, width, LANES, VEC)
    places = places_of_block(LANES, VEC)
    channels = (start + places) // B % C
    mean = of_places(mean_ptr, channels, ACC, 0.0)
    rstd = of_places(rstd_ptr, channels, ACC, 1.0)
    scale = rstd * of_places(weight_ptr, channels, ACC, 1.0)
    # On their way while the sums are added up.
    first_dys = load_tile(dy_ptr, end - 1, start, width, mask, ROWS, LANES, VEC)
    first_xs = load_tile(x_ptr, end - 1, start, width, mask, ROWS, LANES, VEC)
    if PDL:
        gdc_wait()
    sum_dy = of_places(sums_ptr, channels, ACC, 0.0)
    sum_dyx = of_places(sums_ptr + C, channels, ACC, 0.0)
    count = tl.cast(total, ACC)
    for r in tl.static_range(ROWS):
        dx = input_gradient(first_dys[r].to(ACC), first_xs[r].to(ACC) - mean, sum_dy, sum_dyx, rstd, scale, count)
        tl.store(dx_ptr + row_of_tile(end - 1, r, start, width, ROWS, VEC) + places, dx, mask=mask)
    if with_rest & (rest > 0):
        for r in tl.static_range(ROWS):
            offsets, rest_mask = places_in_rest(places, mask, start, r, tiles, rest, width, ROWS)
            dy = tl.load(dy_ptr + offsets, mask=rest_mask, other=0.0).to(ACC)
            x = tl.load(x_ptr + offsets, mask=rest_mask, other=0.0).to(ACC)
            dx = input_gradient(dy, x - mean, sum_dy, sum_dyx, rstd, scale, count)
            tl.store(dx_ptr + offsets, dx, mask=rest_mask)
    for i in tl.range(1, end - begin, num_stages=STAGES):
        tile = end - 1 - i
        dys = load_tile(dy_ptr, tile, start, width, mask, ROWS, LANES, VEC)
        xs = load_tile(x_ptr, tile, start, width, mask, ROWS, LANES, VEC)
        for r in tl.static_range(ROWS):
            dx = input_gradient(dys[r].to(ACC), xs[r].to(ACC) - mean, sum_dy, sum_dyx, rstd, scale, count)
            tl.store(dx_ptr + row_of_tile(tile, r, start, width, ROWS, VEC) + places, dx, mask=mask)
