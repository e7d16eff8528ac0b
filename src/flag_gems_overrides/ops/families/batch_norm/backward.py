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
from ...launch.workspace import collect, decode_pair, encode_pair, publish
from ..norm.statistics import from_bits
from .statistics import rstd_of
from .tile import (
    any_tile_at,
    begin_and_end,
    both_over_tile,
    channels_of,
    columns_and_channels,
    edges_at,
    elements_before,
    in_shape_of,
    load_of_channels,
    merged_channels,
    merged_parts,
    over_parts,
    over_runs,
    over_tile,
    tile_at,
    unaligned_tile_at,
)
from .waiting import announce, arrives_last, leave, leave_words, wait_for, words_at, words_of_block


@triton.jit
def store_gradients(sum_dy, sum_dyx, rstd, channels, C, dweight_ptr, dbias_ptr):
    if dweight_ptr is not None:
        tl.store(dweight_ptr + channels, sum_dyx * rstd, mask=channels < C)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + channels, sum_dy, mask=channels < C)


@triton.jit
def input_gradient(dy, deviation, sum_dy, sum_dyx, rstd, scale, count):
    share = 1.0 / count  # one division, which takes 40 instructions in float64
    return (dy - sum_dy * share - deviation * (rstd * rstd * (sum_dyx * share))) * scale


@triton.jit
def rstd_and_weight(spread_ptr, weight_ptr, channels, C, eps, EVALUATION: tl.constexpr, ACC: tl.constexpr):
    rstd = rstd_of(load_of_channels(spread_ptr, channels, C, ACC, 1.0), eps, EVALUATION)
    return rstd, load_of_channels(weight_ptr, channels, C, ACC, 1.0)


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
    EDGES: tl.constexpr,
    REST: tl.constexpr,
    RUN: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    EVALUATION: tl.constexpr,
    AGAIN: tl.constexpr,
):
    """All gradients where a program holds whole channels: x and dy are read once from memory.

    EDGES: as in batch_norm_backward_groups, with lanes for the heads and tails of all runs
    REST, RUN: as in batch_norm_channels
    AGAIN: x and dy are read again, from L1, so that they take no registers while a program adds up
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    columns, channels = columns_and_channels(tl.program_id(0), CHANNELS, COLUMNS, RUN)
    begin, end = begin_and_end(0, total, total, VEC, COLUMNS, INT64_OFFSETS)
    if EDGES:
        runs = total // (vectors // VEC)
        count = tl.cast(runs * vectors, ACC)
        offsets, mask = unaligned_tile_at(begin, end, channels, C, vectors, BLOCK, VEC)
        at_rest, in_rest = edges_at(0, runs, channels, C, vectors, EDGES, VEC)
    else:
        count = tl.cast(end * RUN if RUN else end, ACC)
        offsets, mask = tile_at(begin, end, columns, C, vectors, BLOCK, VEC, COLUMNS)
        if REST:
            at_rest, in_rest = tile_at(begin + BLOCK, end, columns, C, vectors, REST, VEC, COLUMNS)
    mean = load_of_channels(center_ptr, channels, C, ACC, 0.0)
    rstd = rstd_of(load_of_channels(spread_ptr, channels, C, ACC, 1.0), from_bits(eps_bits, ACC), EVALUATION)
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(ACC)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
    if EDGES + REST:
        dy_of_rest = tl.load(dy_ptr + at_rest, mask=in_rest, other=0.0).to(ACC)
        x_of_rest = tl.load(x_ptr + at_rest, mask=in_rest, other=0.0).to(ACC)
    weight = load_of_channels(weight_ptr, channels, C, ACC, 1.0)
    deviation = x - mean
    sum_dy, sum_dyx = both_over_tile(dy, tl.where(mask, dy * deviation, 0.0), COLUMNS)
    if EDGES + REST:
        of_rest = x_of_rest - mean
        more_dy, more_dyx = both_over_tile(dy_of_rest, tl.where(in_rest, dy_of_rest * of_rest, 0.0), COLUMNS)
        sum_dy += more_dy
        sum_dyx += more_dyx
    sum_dy = over_runs(sum_dy, RUN)
    sum_dyx = over_runs(sum_dyx, RUN)
    store_gradients(sum_dy, sum_dyx, rstd, channels, C, dweight_ptr, dbias_ptr)
    if dx_ptr is not None:
        if AGAIN:
            tl.debug_barrier()  # or the compiler keeps what it has loaded
            dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(ACC)
            deviation = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC) - mean
        scale = rstd * weight
        dx = dy * scale if EVALUATION else input_gradient(dy, deviation, sum_dy, sum_dyx, rstd, scale, count)
        tl.store(dx_ptr + offsets, dx, mask=mask)
        if EDGES + REST:
            if EVALUATION:
                dx = dy_of_rest * scale
            else:
                dx = input_gradient(dy_of_rest, of_rest, sum_dy, sum_dyx, rstd, scale, count)
            tl.store(dx_ptr + at_rest, dx, mask=in_rest)


@entry()
@triton.jit(do_not_specialize=["total", "eps_bits", "blocks", "GROUP", "SLICE"])
def batch_norm_backward_groups(
    dy_ptr,
    x_ptr,
    weight_ptr,
    center_ptr,
    spread_ptr,
    dx_ptr,
    dweight_ptr,
    dbias_ptr,
    partial_ptr,
    workspace_ptr,
    C,
    vectors,
    total,
    eps_bits,
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
    EVALUATION: tl.constexpr,
):
    """All gradients where GROUP programs share a block of channels. In training each reads its part of x and dy twice;
    in evaluation dx does not wait for the sums, and x is not read if they are not wanted.

    The last program of a group to have read its part adds up all parts, in order; by words each program does.

    EDGES is not 0 where runs of B begin anywhere. ``vectors`` is B then, ``total`` the whole vectors of a channel, as
    unaligned_tile_at counts them. A program has its slice of them, and the heads and tails of some runs, as many as
    EDGES lanes have room for at a time.

    partial_ptr: [2, GROUP, C], at the end the sums in place of the first part, None if programs exchange words
    workspace_ptr: see waiting.py, None for groups of one
    PARTS: added up at a time; by words GROUP at least, and as many lanes of them as threads
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    part = tl.program_id(0) % GROUP
    begin, end = begin_and_end(part, SLICE, total, VEC, COLUMNS, INT64_OFFSETS, RUN)
    UNIT: tl.constexpr = 1 if COLUMNS else VEC
    if EDGES:
        runs = total // (vectors // VEC)
        count = tl.cast(tl.cast(runs, tl.int64) * vectors, ACC)
        RUNS: tl.constexpr = EDGES // (2 * VEC)
        first_run, last_run = begin_and_end(part, (runs + GROUP - 1) // GROUP, runs, 1, False, INT64_OFFSETS)
    else:
        count = tl.cast(elements_before(tl.cast(total, tl.int64), vectors, UNIT, RUN), ACC)
    eps = from_bits(eps_bits, ACC)
    shape: tl.constexpr = [BLOCK, CHANNELS] if COLUMNS else [CHANNELS, BLOCK]
    tiles = (end - begin + BLOCK - 1) // BLOCK
    SUMS: tl.constexpr = dweight_ptr is not None or dbias_ptr is not None or not EVALUATION
    WAITS: tl.constexpr = partial_ptr is not None and dx_ptr is not None and not EVALUATION
    WORDS: tl.constexpr = partial_ptr is None and workspace_ptr is not None
    for block in tl.range(tl.program_id(0) // GROUP, blocks, tl.num_programs(0) // GROUP):
        channels = channels_of(block, CHANNELS, COLUMNS)
        mean = load_of_channels(center_ptr, channels, C, ACC, 0.0)
        scale = mean
        if EVALUATION:
            rstd, weight = rstd_and_weight(spread_ptr, weight_ptr, channels, C, eps, EVALUATION, ACC)
            scale = rstd * weight
        if EDGES:
            edges_dy = tl.zeros([CHANNELS, EDGES], ACC)
            edges_dyx = tl.zeros([CHANNELS, EDGES], ACC)
            for first in tl.range(first_run, last_run, RUNS):
                offsets, mask = edges_at(first, last_run, channels, C, vectors, EDGES, VEC)
                edges_dy, edges_dyx = add_tile(
                    dy_ptr, x_ptr, dx_ptr, offsets, mask, mean, scale, edges_dy, edges_dyx, SUMS, EVALUATION
                )
            first_dy = over_tile(edges_dy, COLUMNS)
            first_dyx = over_tile(edges_dyx, COLUMNS)
        tile_dy = tl.zeros(shape, ACC)
        tile_dyx = tl.zeros(shape, ACC)
        for tile in tl.range(0, tiles, num_stages=STAGES):
            first = begin + tile * BLOCK
            offsets, mask = any_tile_at(first, end, channels, C, vectors, BLOCK, VEC, COLUMNS, RUN, EDGES)
            tile_dy, tile_dyx = add_tile(
                dy_ptr, x_ptr, dx_ptr, offsets, mask, mean, scale, tile_dy, tile_dyx, SUMS, EVALUATION
            )
        sum_dy = over_tile(tile_dy, COLUMNS)
        sum_dyx = over_tile(tile_dyx, COLUMNS)
        if EDGES:
            sum_dy += first_dy
            sum_dyx += first_dyx
        if not EVALUATION:
            # After the loop, which has no register for them; on their way while this program waits for the others.
            rstd, weight = rstd_and_weight(spread_ptr, weight_ptr, channels, C, eps, EVALUATION, ACC)
        if workspace_ptr is None:
            store_gradients(sum_dy, sum_dyx, rstd, channels, C, dweight_ptr, dbias_ptr)
        elif WORDS:
            words_ptr = words_at(workspace_ptr, blocks)
            publish(words_ptr + part * C + channels, encode_pair(sum_dy, sum_dyx), channels < C)
            sum_dy, sum_dyx = add_words(words_ptr, block, C, GROUP, CHANNELS, PARTS, COLUMNS)
            if part == 0:
                store_gradients(sum_dy, sum_dyx, rstd, channels, C, dweight_ptr, dbias_ptr)
        else:
            places = partial_ptr + part * C + channels
            tl.store(places, sum_dy, mask=channels < C)
            tl.store(places + GROUP * C, sum_dyx, mask=channels < C)
            if arrives_last(workspace_ptr, block, part, GROUP, SHARES):
                whole_dy, whole_dyx, added = add_parts(partial_ptr, block, C, GROUP, CHANNELS, PARTS)
                added_rstd = rstd_of(load_of_channels(spread_ptr, added, C, ACC, 1.0), eps, EVALUATION)
                store_gradients(whole_dy, whole_dyx, added_rstd, added, C, dweight_ptr, dbias_ptr)
                if WAITS:
                    tl.store(partial_ptr + added, whole_dy, mask=added < C)
                    tl.store(partial_ptr + GROUP * C + added, whole_dyx, mask=added < C)
                    announce(workspace_ptr, block, blocks, SHARES)
        if dx_ptr is not None and not EVALUATION:
            if WAITS:
                wait_for(workspace_ptr, block, blocks, part, SHARES)
                sum_dy = load_of_channels(partial_ptr, channels, C, ACC, 0.0)
                sum_dyx = load_of_channels(partial_ptr + GROUP * C, channels, C, ACC, 0.0)
            scale = rstd * weight
            if EDGES:
                for first in tl.range(first_run, last_run, RUNS):
                    offsets, mask = edges_at(first, last_run, channels, C, vectors, EDGES, VEC)
                    store_tile(dy_ptr, x_ptr, dx_ptr, offsets, mask, mean, sum_dy, sum_dyx, rstd, scale, count)
            # Backwards: what was read last may still be in L1.
            for tile in tl.range(0, tiles, num_stages=STAGES):
                first = begin + (tiles - 1 - tile) * BLOCK
                offsets, mask = any_tile_at(first, end, channels, C, vectors, BLOCK, VEC, COLUMNS, RUN, EDGES)
                store_tile(dy_ptr, x_ptr, dx_ptr, offsets, mask, mean, sum_dy, sum_dyx, rstd, scale, count)
        if WORDS:
            leave_words(workspace_ptr, block, blocks, C, GROUP, 1, CHANNELS, PARTS)
        elif WAITS:
            leave(workspace_ptr, block, blocks, part, GROUP, SHARES)


@triton.jit
def add_tile(
    dy_ptr,
    x_ptr,
    dx_ptr,
    offsets,
    mask,
    mean,
    scale,
    tile_dy,
    tile_dyx,
    SUMS: tl.constexpr,
    EVALUATION: tl.constexpr,
):
    """tile_dy and tile_dyx with these elements added. In evaluation their dx is stored too, which ``scale`` is for."""
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(mean.dtype)
    if SUMS:
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(mean.dtype)
        tile_dy += dy
        tile_dyx += tl.where(mask, dy * (x - mean), 0.0)
    if EVALUATION and dx_ptr is not None:
        tl.store(dx_ptr + offsets, dy * scale, mask=mask)
    return tile_dy, tile_dyx


@triton.jit
def store_tile(dy_ptr, x_ptr, dx_ptr, offsets, mask, mean, sum_dy, sum_dyx, rstd, scale, count):
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(mean.dtype)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(mean.dtype)
    dx = input_gradient(dy, x - mean, sum_dy, sum_dyx, rstd, scale, count)
    tl.store(dx_ptr + offsets, dx, mask=mask)


@triton.jit
def add_parts(partial_ptr, block, C, GROUP, CHANNELS: tl.constexpr, PARTS: tl.constexpr):
    """(sum of dy, sum of dy * (x - mean), channels) of a block over what the programs of a group stored.

    partial_ptr: [2, GROUP, C]
    """
    channels = merged_channels(block, CHANNELS)
    plane = GROUP * C
    sum_dy = tl.zeros_like(tl.load(partial_ptr + channels, mask=channels < C, other=0.0))
    sum_dyx = tl.zeros_like(sum_dy)
    for first in tl.range(0, GROUP, PARTS):
        parts = merged_parts(first, CHANNELS, PARTS)
        mask = (parts < GROUP) & (channels < C)
        places = partial_ptr + parts * C + channels
        sum_dy += over_parts(tl.load(places, mask=mask, other=0.0))
        sum_dyx += over_parts(tl.load(places + plane, mask=mask, other=0.0))
    return sum_dy, sum_dyx, channels


@triton.jit
def add_words(words_ptr, block, C, GROUP, CHANNELS: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sums of all parts of a block, in the shape of channels_of, from what its programs publish: [GROUP, C]."""
    places, mask = words_of_block(words_ptr, block, C, GROUP, CHANNELS, PARTS)
    part_dy, part_dyx = decode_pair(collect(places, mask))
    sum_dy = over_parts(tl.where(mask, part_dy, 0.0))
    sum_dyx = over_parts(tl.where(mask, part_dyx, 0.0))
    return in_shape_of(sum_dy, COLUMNS), in_shape_of(sum_dyx, COLUMNS)
