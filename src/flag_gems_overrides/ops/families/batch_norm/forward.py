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
from ...launch.workspace import encode_pair, publish
from ..norm.statistics import corrected_by, divide_by, from_bits, mean_to_store, reciprocal, sums_are_exact
from .statistics import merge_parts, merge_words, store_statistics
from .tile import (
    any_tile_at,
    begin_and_end,
    both_over_tile,
    channels_of,
    columns_and_channels,
    count_between,
    edges_at,
    elements_before,
    load_of_channels,
    over_runs,
    over_tile,
    runs_of,
    tile_at,
)
from .waiting import announce, arrives_last, leave, leave_words, wait_for, words_at


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
    EDGES: tl.constexpr,
    REST: tl.constexpr,
    RUN: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """Training where a program holds whole channels: x is read once.

    EDGES: as in batch_norm_groups, with lanes for the heads and tails of all runs
    REST: rows of a second tile of columns, or elements of channels, after BLOCK, or 0
    RUN: B where tiles are of columns all the same, [BLOCK, CHANNELS] elements of CHANNELS // RUN channels, or 0
    """
    tl.static_assert(EDGES == 0 or REST == 0)
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    columns, channels = columns_and_channels(tl.program_id(0), CHANNELS, COLUMNS, RUN)
    begin, end = begin_and_end(0, total, total, VEC, COLUMNS, INT64_OFFSETS)
    offsets, mask = any_tile_at(begin, end, columns, C, vectors, BLOCK, VEC, COLUMNS, 0, EDGES)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
    count = tl.cast(end * RUN if RUN else end, ACC)
    if EDGES:
        runs = total // (vectors // VEC)
        count = tl.cast(runs * vectors, ACC)
        at_rest, in_rest = edges_at(0, runs, channels, C, vectors, EDGES, VEC)
    elif REST:
        at_rest, in_rest = tile_at(begin + BLOCK, end, columns, C, vectors, REST, VEC, COLUMNS)
    if EDGES + REST:
        rest = tl.load(x_ptr + at_rest, mask=in_rest, other=0.0).to(ACC)
    # All loads at once, so that none waits for another.
    weight = load_of_channels(weight_ptr, channels, C, ACC, 1.0)
    bias = load_of_channels(bias_ptr, channels, C, ACC, 0.0)
    running_mean = load_of_channels(running_mean_ptr, channels, C, ACC, 0.0)
    running_var = load_of_channels(running_var_ptr, channels, C, ACC, 0.0)
    inverse = reciprocal(count, ACC)
    whole_sum = over_tile(x, COLUMNS)
    if EDGES + REST:
        whole_sum += over_tile(rest, COLUMNS)
    whole_sum = over_runs(whole_sum, RUN)
    if sums_are_exact(x_ptr.dtype.element_ty, (BLOCK + EDGES + REST) * max(RUN, 1)):
        mean = divide_by(whole_sum, count, inverse)
        deviation = tl.where(mask, x - mean, 0.0)
        squares = over_tile(deviation * deviation, COLUMNS)
        if EDGES + REST:
            of_rest = tl.where(in_rest, rest - mean, 0.0)
            squares += over_tile(of_rest * of_rest, COLUMNS)
        squares = over_runs(squares, RUN)
    else:
        mean = whole_sum * inverse
        deviation = tl.where(mask, x - mean, 0.0)
        # What the mean was rounded by, all elements of a channel are off by.
        deviation_sum, squares = both_over_tile(deviation, deviation * deviation, COLUMNS)
        if EDGES + REST:
            of_rest = tl.where(in_rest, rest - mean, 0.0)
            rest_sum, rest_squares = both_over_tile(of_rest, of_rest * of_rest, COLUMNS)
            deviation_sum += rest_sum
            squares += rest_squares
        deviation_sum = over_runs(deviation_sum, RUN)
        squares = over_runs(squares, RUN)
        mean, squares = corrected_by(mean, deviation_sum, squares, inverse)
        deviation = x - mean
    rstd = store_statistics(
        mean, squares, running_mean, running_var, channels, C, count,
        from_bits(eps_bits, ACC), from_bits(momentum_bits, ACC),
        mean_ptr, rstd_ptr, running_mean_ptr, running_var_ptr,
    )  # fmt: skip
    tl.store(y_ptr + offsets, deviation * (rstd * weight) + bias, mask=mask)
    if EDGES + REST:
        tl.store(y_ptr + at_rest, (rest - mean) * (rstd * weight) + bias, mask=in_rest)


@entry()
@triton.jit(do_not_specialize=["total", "eps_bits", "momentum_bits", "blocks", "GROUP", "SLICE"])
def batch_norm_groups(
    x_ptr,
    weight_ptr,
    bias_ptr,
    running_mean_ptr,
    running_var_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    partial_ptr,
    workspace_ptr,
    C,
    vectors,
    total,
    eps_bits,
    momentum_bits,
    blocks,
    GROUP,
    SLICE,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    RUN: tl.constexpr,
    EDGES: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    PARTS: tl.constexpr,
    SHARES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Training where GROUP programs share a block of channels: each has a part of it, which it reads twice.

    The last program of a group to have read its part merges all parts; the others wait for it. By words each program
    merges all parts.

    EDGES is not 0 where runs of B begin anywhere. ``vectors`` is B then, ``total`` the whole vectors of a channel, as
    unaligned_tile_at counts them. A program has its slice of them, and the heads and tails of the runs that end in the
    slice, as many as EDGES lanes have room for at a time.

    partial_ptr: [3, GROUP, C], less than 2**31 numbers, because a part has many elements; None if programs exchange
    words
    workspace_ptr: see waiting.py, None for groups of one
    PARTS: merged at a time; by words GROUP at least, and as many lanes of them as threads
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    UNIT: tl.constexpr = 1 if COLUMNS else VEC
    part = tl.program_id(0) % GROUP
    begin, end = begin_and_end(part, SLICE, total, VEC, COLUMNS, INT64_OFFSETS, RUN)
    part_count = tl.cast(count_between(begin, end, vectors, UNIT, RUN, EDGES), ACC)
    count = tl.cast(elements_before(tl.cast(total, tl.int64), vectors, UNIT, RUN, EDGES), ACC)
    eps = from_bits(eps_bits, ACC)
    momentum = from_bits(momentum_bits, ACC)
    tiles = (end - begin + BLOCK - 1) // BLOCK
    if EDGES:
        RUNS: tl.constexpr = EDGES // (2 * VEC)
        first_run, last_run = runs_of(begin, end, vectors, VEC)
    plane = GROUP * C
    for block in tl.range(tl.program_id(0) // GROUP, blocks, tl.num_programs(0) // GROUP):
        channels = channels_of(block, CHANNELS, COLUMNS)
        offsets, mask = any_tile_at(begin, end, channels, C, vectors, BLOCK, VEC, COLUMNS, RUN, EDGES)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
        if EDGES:
            first_sum, first_count = both_over_tile(x, mask.to(ACC), COLUMNS)
            pivot = first_sum / first_count
        else:
            first_count = count_between(begin, tl.minimum(begin + BLOCK, end), vectors, UNIT, RUN)
            pivot = over_tile(x, COLUMNS) / tl.cast(first_count, ACC)
        deviation = tl.where(mask, x - pivot, 0.0)
        sums = deviation
        squares = deviation * deviation
        for tile in tl.range(1, tiles, num_stages=STAGES):
            first = begin + tile * BLOCK
            offsets, mask = any_tile_at(first, end, channels, C, vectors, BLOCK, VEC, COLUMNS, RUN, EDGES)
            sums, squares = add_tile(x_ptr, offsets, mask, pivot, sums, squares)
        part_sum = over_tile(sums, COLUMNS)
        if EDGES:
            # Before the loop, which needs their registers.
            part_squares = over_tile(squares, COLUMNS)
            edges_sums = tl.zeros([CHANNELS, EDGES], ACC)
            edges_squares = tl.zeros([CHANNELS, EDGES], ACC)
            for first in tl.range(first_run, last_run, RUNS):
                at_edges, in_edges = edges_at(first, last_run, channels, C, vectors, EDGES, VEC)
                edges_sums, edges_squares = add_tile(x_ptr, at_edges, in_edges, pivot, edges_sums, edges_squares)
            part_sum += over_tile(edges_sums, COLUMNS)
            part_squares += over_tile(edges_squares, COLUMNS)
        shift = part_sum / part_count
        if EDGES:
            part_squares -= shift * part_sum
        else:
            # Each lane subtracts its own share, so that what the sums are rounded by does not count twice.
            part_squares = over_tile(squares - (2 * shift) * sums, COLUMNS) + shift * (shift * part_count)
        part_squares = tl.where(part_squares < 0, 0.0, part_squares)
        # On their way while this program waits for the others.
        weight = load_of_channels(weight_ptr, channels, C, ACC, 1.0)
        bias = load_of_channels(bias_ptr, channels, C, ACC, 0.0)
        if workspace_ptr is None:
            mean = pivot + shift
            running_mean = load_of_channels(running_mean_ptr, channels, C, ACC, 0.0)
            running_var = load_of_channels(running_var_ptr, channels, C, ACC, 0.0)
            rstd = store_statistics(
                mean, part_squares, running_mean, running_var, channels, C, count, eps, momentum,
                mean_ptr, rstd_ptr, running_mean_ptr, running_var_ptr,
            )  # fmt: skip
        elif partial_ptr is None:
            words_ptr = words_at(workspace_ptr, blocks)
            places = words_ptr + part * C + channels
            publish(places, encode_pair(pivot, shift), channels < C)
            publish(places + plane, encode_pair(part_squares, tl.zeros_like(part_squares)), channels < C)
            running_mean = load_of_channels(running_mean_ptr, channels, C, ACC, 0.0)
            running_var = load_of_channels(running_var_ptr, channels, C, ACC, 0.0)
            mean, squares = merge_words(
                words_ptr, block, C, GROUP, SLICE, total, vectors, UNIT, RUN, EDGES, CHANNELS, PARTS, COLUMNS
            )
            if part == 0:
                store_statistics(
                    mean, squares, running_mean, running_var, channels, C, count, eps, momentum,
                    mean_ptr, rstd_ptr, running_mean_ptr, running_var_ptr,
                )  # fmt: skip
            variance = squares * (1.0 / count)
            rstd = tl.rsqrt(variance + eps)
            mean = mean_to_store(mean, variance)
        else:
            places = partial_ptr + part * C + channels
            tl.store(places, pivot, mask=channels < C)
            tl.store(places + plane, shift, mask=channels < C)
            tl.store(places + 2 * plane, part_squares, mask=channels < C)
            if arrives_last(workspace_ptr, block, part, GROUP, SHARES):
                whole_mean, whole_squares, merged = merge_parts(
                    partial_ptr, block, C, GROUP, SLICE, total, vectors, UNIT, RUN, EDGES, CHANNELS, PARTS
                )
                running_mean = load_of_channels(running_mean_ptr, merged, C, ACC, 0.0)
                running_var = load_of_channels(running_var_ptr, merged, C, ACC, 0.0)
                store_statistics(
                    whole_mean, whole_squares, running_mean, running_var, merged, C, count, eps, momentum,
                    mean_ptr, rstd_ptr, running_mean_ptr, running_var_ptr,
                )  # fmt: skip
                announce(workspace_ptr, block, blocks, SHARES)
            wait_for(workspace_ptr, block, blocks, part, SHARES)
            mean = load_of_channels(mean_ptr, channels, C, ACC, 0.0)
            rstd = load_of_channels(rstd_ptr, channels, C, ACC, 1.0)
        scale = rstd * weight
        if EDGES:
            for first in tl.range(first_run, last_run, RUNS):
                at_edges, in_edges = edges_at(first, last_run, channels, C, vectors, EDGES, VEC)
                store_tile(x_ptr, y_ptr, at_edges, in_edges, mean, scale, bias)
        # Backwards: what was read last may still be in L1.
        for tile in tl.range(0, tiles, num_stages=STAGES):
            first = begin + (tiles - 1 - tile) * BLOCK
            offsets, mask = any_tile_at(first, end, channels, C, vectors, BLOCK, VEC, COLUMNS, RUN, EDGES)
            store_tile(x_ptr, y_ptr, offsets, mask, mean, scale, bias)
        if partial_ptr is not None:
            leave(workspace_ptr, block, blocks, part, GROUP, SHARES)
        elif workspace_ptr is not None:
            leave_words(workspace_ptr, block, blocks, C, GROUP, 2, CHANNELS, PARTS)


@triton.jit
def add_tile(x_ptr, offsets, mask, pivot, sums, squares):
    """sums and squares with the deviations of these elements added."""
    deviation = tl.where(mask, tl.load(x_ptr + offsets, mask=mask, other=0.0).to(pivot.dtype) - pivot, 0.0)
    return sums + deviation, squares + deviation * deviation


@triton.jit
def store_tile(x_ptr, y_ptr, offsets, mask, mean, scale, bias):
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(mean.dtype)
    tl.store(y_ptr + offsets, (x - mean) * scale + bias, mask=mask)


@entry()
@triton.jit(do_not_specialize=["total", "eps_bits", "GROUP", "SLICE"])
def batch_norm_evaluation(
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
    GROUP,
    SLICE,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    VEC: tl.constexpr,
    COLUMNS: tl.constexpr,
    RUN: tl.constexpr,
    EDGES: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """By the running statistics, which are the mean and rstd that it returns."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    part = tl.program_id(0) % GROUP
    channels = channels_of(tl.program_id(0) // GROUP, CHANNELS, COLUMNS)
    begin, end = begin_and_end(part, SLICE, total, VEC, COLUMNS, INT64_OFFSETS, RUN)
    mean = load_of_channels(running_mean_ptr, channels, C, ACC, 0.0)
    rstd = tl.rsqrt(load_of_channels(running_var_ptr, channels, C, ACC, 1.0) + from_bits(eps_bits, ACC))
    tl.store(mean_ptr + channels, mean, mask=(channels < C) & (part == 0))
    tl.store(rstd_ptr + channels, rstd, mask=(channels < C) & (part == 0))
    scale = rstd * load_of_channels(weight_ptr, channels, C, ACC, 1.0)
    bias = load_of_channels(bias_ptr, channels, C, ACC, 0.0)
    if EDGES:
        RUNS: tl.constexpr = EDGES // (2 * VEC)
        first_run, last_run = runs_of(begin, end, vectors, VEC)
        for first in tl.range(first_run, last_run, RUNS):
            offsets, mask = edges_at(first, last_run, channels, C, vectors, EDGES, VEC)
            store_tile(x_ptr, y_ptr, offsets, mask, mean, scale, bias)
    for tile in tl.range(0, (end - begin + BLOCK - 1) // BLOCK):
        first = begin + tile * BLOCK
        offsets, mask = any_tile_at(first, end, channels, C, vectors, BLOCK, VEC, COLUMNS, RUN, EDGES)
        store_tile(x_ptr, y_ptr, offsets, mask, mean, scale, bias)
