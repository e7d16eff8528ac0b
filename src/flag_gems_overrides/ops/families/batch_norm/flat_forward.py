# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Forward kernels of batch normalization that read memory as it lies, in training. flat.py says what their parameters
are, and norm/backward.py what PDL is."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ...launch.prepared import entry
from ..norm.statistics import from_bits
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
    rows_of_places,
)
from .statistics import merged_with, store_statistics
from .tile import load_of_channels


@entry()
@triton.jit(do_not_specialize=["tiles", "rest", "GROUP", "SLICE"])
def batch_norm_flat_statistics(
    x_ptr,
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
    """The statistics of a part of a block of channels, from a pivot for each place: the mean of the first tile. It is
    of so few elements that it may be far from all others; so the mean follows, tile after tile (Welford)."""
    ACC: tl.constexpr = partial_ptr.dtype.element_ty
    if PDL:
        gdc_launch_dependents()
    block, part, begin, end, with_rest = part_of_block(tl.program_id(0), GROUP, SLICE, tiles)
    start, mask = block_of(block, width, LANES, VEC)
    places = places_of_block(LANES, VEC)
    first_rows = load_tile(x_ptr, begin, start, width, mask, ROWS, LANES, VEC)
    pivot = first_rows[0].to(ACC)
    for r in tl.static_range(1, ROWS):
        pivot += first_rows[r].to(ACC)
    pivot = pivot / ROWS
    mean = tl.zeros([LANES, VEC], ACC)  # minus the pivot
    squares = tl.zeros([LANES, VEC], ACC)
    for r in tl.static_range(ROWS):
        deviation = first_rows[r].to(ACC) - pivot
        squares += deviation * deviation
    for tile in tl.range(begin + 1, end, num_stages=STAGES):
        xs = load_tile(x_ptr, tile, start, width, mask, ROWS, LANES, VEC)
        tile_sum = tl.zeros([LANES, VEC], ACC)
        tile_squares = tl.zeros([LANES, VEC], ACC)
        for r in tl.static_range(ROWS):
            deviation = xs[r].to(ACC) - pivot - mean
            tile_sum += deviation
            tile_squares += deviation * deviation
        shift = tile_sum * (1.0 / tl.cast((tile - begin + 1) * ROWS, ACC))
        mean += shift
        squares += tile_squares - tile_sum * shift
    if with_rest & (rest > 0):
        count = tl.zeros([LANES, VEC], ACC) + (end - begin) * ROWS
        for r in tl.static_range(ROWS):
            offsets, rest_mask = places_in_rest(places, mask, start, r, tiles, rest, width, ROWS)
            x = tl.load(x_ptr + offsets, mask=rest_mask, other=0.0).to(ACC)
            deviation = tl.where(rest_mask, x - pivot - mean, 0.0)
            count += 1.0
            shift = deviation / count
            mean += shift
            squares += deviation * (deviation - shift)
    if UNIT > 1:
        # The places of a vector are of one channel and of as many rows: UNIT, VEC, of them are merged.
        rows = rows_of_places(start + places, end - begin, rest, with_rest, width, ROWS).to(ACC)
        unit_pivot = tl.sum(pivot, 1, keep_dims=True) / UNIT
        mean += pivot - unit_pivot
        pivot = unit_pivot
        unit_mean = tl.sum(mean, 1, keep_dims=True) / UNIT
        deviation = mean - unit_mean
        squares = tl.sum(squares + rows * deviation * deviation, 1, keep_dims=True)
        mean = unit_mean
    units = places_of_block(LANES, VEC // UNIT)
    row = width // UNIT
    if columns_ptr is None:
        partial_ptr += row_of_part(part, start // UNIT, row, VEC // UNIT) + units
        plane = row_of_part(GROUP, 0, row, VEC // UNIT)
        tl.store(partial_ptr, pivot, mask=mask)
        tl.store(partial_ptr + plane, mean, mask=mask)
        tl.store(partial_ptr + 2 * plane, squares, mask=mask)
    else:
        COUNT: tl.constexpr = LANES * VEC // UNIT
        columns_ptr += tl.cast(tl.program_id(0), tl.int64) * 3 * COUNT
        tl.store(columns_ptr + units, pivot)
        tl.store(columns_ptr + COUNT + units, mean)
        tl.store(columns_ptr + 2 * COUNT + units, squares)
        tl.debug_barrier()
        merge_places(
            columns_ptr, partial_ptr + part * C, GROUP * C, C, B // UNIT, row, per_row // UNIT, end - begin,
            rest // UNIT, with_rest, ROWS, COUNT, BLOCK_C, BLOCK_E, UNIT,
        )  # fmt: skip


@triton.jit
def merge_places(
    columns_ptr,
    partial_ptr,
    plane,
    C,
    B,
    width,
    per_row,
    tiles,
    rest,
    with_rest,
    ROWS: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_E: tl.constexpr,
    UNIT: tl.constexpr,
):
    """The statistics of each channel over its places (Chan, Golub and LeVeque), as statistics.py has them of parts:
    from the pivot of the first place.

    columns_ptr: [3, COUNT], pivots, means minus pivots, sums of squared deviations
    partial_ptr: [3, GROUP, C], the same of channels, where this program's part is
    """
    ACC: tl.constexpr = columns_ptr.dtype.element_ty
    for first in tl.range(0, C, BLOCK_C):
        channels = first + tl.arange(0, BLOCK_C)[:, None]
        known = channels < C
        origin = tl.load(columns_ptr + channels * B, mask=known, other=0.0)
        sums = tl.zeros([BLOCK_C, BLOCK_E], ACC)
        counts = tl.zeros([BLOCK_C, BLOCK_E], ACC)
        for e in tl.range(0, per_row, BLOCK_E):
            count, mean, _ = entries_of_channels(
                columns_ptr, origin, channels, known, e, C, B, width, per_row, tiles, rest, with_rest,
                ROWS, COUNT, BLOCK_E, UNIT,
            )  # fmt: skip
            sums += mean * count
            counts += count
        channel_count = tl.sum(counts, 1, keep_dims=True)
        channel_mean = tl.sum(sums, 1, keep_dims=True) / channel_count
        squares = tl.zeros([BLOCK_C, BLOCK_E], ACC)
        # What the mean was rounded by, for the first place may be far from it.
        rounded = tl.zeros([BLOCK_C, BLOCK_E], ACC)
        for e in tl.range(0, per_row, BLOCK_E):
            count, mean, place_squares = entries_of_channels(
                columns_ptr, origin, channels, known, e, C, B, width, per_row, tiles, rest, with_rest,
                ROWS, COUNT, BLOCK_E, UNIT,
            )  # fmt: skip
            deviation = tl.where(count > 0, mean - channel_mean, 0.0)
            squares += place_squares + count * deviation * deviation
            rounded += count * deviation
        channel_mean += tl.sum(rounded, 1, keep_dims=True) / channel_count
        out = partial_ptr + channels
        tl.store(out, origin, mask=known)
        tl.store(out + plane, channel_mean, mask=known)
        tl.store(out + 2 * plane, tl.sum(squares, 1, keep_dims=True), mask=known)


@triton.jit
def entries_of_channels(
    columns_ptr,
    origin,
    channels,
    known,
    first,
    C,
    B,
    width,
    per_row,
    tiles,
    rest,
    with_rest,
    ROWS: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK_E: tl.constexpr,
    UNIT: tl.constexpr,
):
    """(count, mean minus origin, sum of squared deviations) of the entries from ``first`` on, 0 where there is none."""
    entries = first + tl.arange(0, BLOCK_E)[None, :]
    mask = known & (entries < per_row)
    places = places_of_channels(channels, entries, C, B)
    count = tl.where(mask, UNIT * rows_of_places(places, tiles, rest, with_rest, width, ROWS), 0).to(origin.dtype)
    mean = tl.load(columns_ptr + places, mask=mask, other=0.0) - origin
    mean += tl.load(columns_ptr + COUNT + places, mask=mask, other=0.0)
    return count, tl.where(mask, mean, 0.0), tl.load(columns_ptr + 2 * COUNT + places, mask=mask, other=0.0)


@entry()
@triton.jit(do_not_specialize=["eps_bits", "momentum_bits", "GROUP", "SLICE", "total", "tiles", "rest"])
def batch_norm_flat_merge(
    partial_ptr,
    running_mean_ptr,
    running_var_ptr,
    mean_ptr,
    rstd_ptr,
    C,
    B,
    width,
    per_row,
    tiles,
    rest,
    total,
    eps_bits,
    momentum_bits,
    GROUP,
    SLICE,
    CHANNELS: tl.constexpr,
    ENTRIES: tl.constexpr,
    ROWS: tl.constexpr,
    UNIT: tl.constexpr,
    PDL: tl.constexpr,
):
    """The statistics of CHANNELS channels, of ``total`` elements each, from those of their parts.

    partial_ptr: [3, GROUP, width], of whose places ``per_row`` are of each channel, or with ROWS 0 statistics of
        channels: these are themselves the places, C of them, B is 1, and SLICE is the elements of a part
    running_mean_ptr, running_var_ptr: [C] or None
    """
    ACC: tl.constexpr = partial_ptr.dtype.element_ty
    channels = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    running_mean = load_of_channels(running_mean_ptr, channels, C, ACC, 0.0)
    running_var = load_of_channels(running_var_ptr, channels, C, ACC, 0.0)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    origin = tl.load(partial_ptr + channels * B, mask=channels < C, other=0.0)
    # Of each of ENTRIES entries by itself, until all are merged.
    means = tl.zeros([ENTRIES, CHANNELS], ACC)  # minus the origin
    squares = tl.zeros([ENTRIES, CHANNELS], ACC)
    counts = tl.zeros([ENTRIES, CHANNELS], ACC)
    plane = GROUP * width
    for first in tl.range(0, GROUP * per_row, ENTRIES):
        entries = first + tl.arange(0, ENTRIES)[:, None]
        parts = entries // per_row
        mask = (parts < GROUP) & (channels < C)
        places = places_of_channels(channels, entries - parts * per_row, C, B)
        part_ptr = partial_ptr + parts * width + places
        part_mean = tl.load(part_ptr, mask=mask, other=0.0) - origin + tl.load(part_ptr + plane, mask=mask, other=0.0)
        part_squares = tl.load(part_ptr + 2 * plane, mask=mask, other=0.0)
        if ROWS == 0:
            elements = tl.where(parts < GROUP - 1, SLICE, total - tl.cast(SLICE, tl.int64) * (GROUP - 1))
        else:
            of_part = tl.minimum(SLICE, tiles - parts * SLICE)
            elements = UNIT * rows_of_places(places, of_part, rest, parts == GROUP - 1, width, ROWS)
        part_count = tl.where(parts < GROUP, elements, 0).to(ACC)
        shift = tl.where(mask, part_mean - means, 0.0)
        new_counts = counts + part_count
        share = part_count / tl.where(mask, new_counts, 1.0)
        squares += part_squares + shift * shift * counts * share
        means += shift * share
        counts = new_counts
    none = tl.zeros_like(origin)
    mean, squares, _ = merged_with(none, none, none, means, squares, counts, counts > 0)
    store_statistics(
        origin + mean, squares, running_mean, running_var, channels, C, tl.cast(total, ACC),
        from_bits(eps_bits, ACC), from_bits(momentum_bits, ACC),
        mean_ptr, rstd_ptr, running_mean_ptr, running_var_ptr,
    )  # fmt: skip


@entry()
@triton.jit(do_not_specialize=["tiles", "rest", "GROUP", "SLICE"])
def batch_norm_flat_apply(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    C,
    B,
    width,
    tiles,
    rest,
    GROUP,
    SLICE,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """The result, backwards: what was read last may still be in the cache."""
    ACC: tl.constexpr = mean_ptr.dtype.element_ty
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    block, _, begin, end, with_rest = part_of_block(program, GROUP, SLICE, tiles)
    start, mask = block_of(block, width, LANES, VEC)
    places = places_of_block(LANES, VEC)
    channels = (start + places) // B % C
    weight = of_places(weight_ptr, channels, ACC, 1.0)
    bias = of_places(bias_ptr, channels, ACC, 0.0)
    # On their way while the statistics are merged.
    first_rows = load_tile(x_ptr, end - 1, start, width, mask, ROWS, LANES, VEC)
    if PDL:
        gdc_wait()
    mean = of_places(mean_ptr, channels, ACC, 0.0)
    scale = of_places(rstd_ptr, channels, ACC, 1.0) * weight
    if with_rest & (rest > 0):
        for r in tl.static_range(ROWS):
            offsets, rest_mask = places_in_rest(places, mask, start, r, tiles, rest, width, ROWS)
            x = tl.load(x_ptr + offsets, mask=rest_mask, other=0.0).to(ACC)
            tl.store(y_ptr + offsets, (x - mean) * scale + bias, mask=rest_mask)
    for r in tl.static_range(ROWS):
        y = (first_rows[r].to(ACC) - mean) * scale + bias
        tl.store(y_ptr + row_of_tile(end - 1, r, start, width, ROWS, VEC) + places, y, mask=mask)
    for i in tl.range(1, end - begin, num_stages=STAGES):
        tile = end - 1 - i
        xs = load_tile(x_ptr, tile, start, width, mask, ROWS, LANES, VEC)
        for r in tl.static_range(ROWS):
            y = (xs[r].to(ACC) - mean) * scale + bias
            tl.store(y_ptr + row_of_tile(tile, r, start, width, ROWS, VEC) + places, y, mask=mask)
