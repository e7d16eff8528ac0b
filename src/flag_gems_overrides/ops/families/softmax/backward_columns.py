# SPDX-License-Identifier: Apache-2.0
"""Kernels of the gradients of softmax and log_softmax of columns (K > 1), as :mod:`.backward` says."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import encode, publish
from .backward import collect_sum, gradient, read_tiles, summand, write_tiles
from .group import clear_last, clear_own, group_position, group_workspace
from .tile import (
    column_mask,
    column_share,
    column_tile,
    lane_sum,
    load_short_columns,
    short_blocks,
    short_columns,
    short_mask,
    sum_across_lanes,
    whole_vectors,
)


@entry()
@triton.jit(do_not_specialize=["M", "N", "K"])
def softmax_backward_short_columns(
    g_ptr,
    y_ptr,
    dx_ptr,
    M,
    N,
    K,
    LOG: tl.constexpr,
    LANES: tl.constexpr,
    DEPTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    VEC: tl.constexpr,
    WIDTH: tl.constexpr,
    CONSTANT_K: tl.constexpr,
    COMPUTE: tl.constexpr,
    AXIS: tl.constexpr,
):
    """As ``softmax_short_columns``.

    g_ptr, y_ptr, dx_ptr: [M, N, K]
    """
    if WIDTH:
        K = CONSTANT_K
        start, offsets, n, mask = short_blocks(M, N, K, LANES, COLUMNS // WIDTH, WIDTH, AXIS)
        g_ptr += start + offsets
        y_ptr += start + offsets
        dx_ptr += start + offsets
        offsets = 0
    else:
        K = whole_vectors(K, VEC)
        offsets, n, mask = short_columns(M, N, K, LANES, COLUMNS, VEC)
    g = load_short_columns(g_ptr, offsets, mask, n, N, K, 0.0, LANES, DEPTH, COMPUTE)
    y = load_short_columns(y_ptr, offsets, mask, n, N, K, 0.0, LANES, DEPTH, COMPUTE)
    row_sum = summand(g[0], y[0], short_mask(mask, n, N, 0, LANES, DEPTH), LOG)
    for i in tl.static_range(1, DEPTH):
        row_sum += summand(g[i], y[i], short_mask(mask, n, N, i, LANES, DEPTH), LOG)
    row_sum = tl.sum(row_sum, AXIS, keep_dims=True)
    for i in tl.static_range(DEPTH):
        pointers = dx_ptr + i * LANES * tl.cast(K, tl.int64) + offsets
        dx = gradient(g[i], y[i], row_sum, LOG)
        tl.store(pointers, dx, mask=short_mask(mask, n, N, i, LANES, DEPTH))


@entry()
@triton.jit(do_not_specialize=["group", "blocks", "N", "K"])
def softmax_backward_columns(
    g_ptr,
    y_ptr,
    dx_ptr,
    workspace_ptr,
    group,
    blocks,
    N,
    K,
    LOG: tl.constexpr,
    VEC: tl.constexpr,
    EVEN: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    MEMBERS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK_K: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """``group`` programs for each block of BLOCK_K columns; a program's share is a tile of [LANES * DEPTH, BLOCK_K].

    EVEN: all tiles are whole. INT64_OFFSETS: offsets within a tile need 64 bits.

    g_ptr, y_ptr, dx_ptr: [M, N, K]; workspace_ptr: [blocks, group, BLOCK_K] words and [groups] counters, or None where
    MEMBERS is 1
    """
    tl.static_assert(BLOCK_K > 1)
    group, member, groups = group_position(group, MEMBERS)
    K = K // VEC * VEC  # K itself, but the compiler now sees that VEC divides it
    if INT64_OFFSETS:
        K = tl.cast(K, tl.int64)
    n, k, offsets = column_tile(K, LANES, DEPTH, BLOCK_K)
    first = tl.program_id(0) // group
    if MEMBERS > 1:
        words_ptr, step, counter_ptr, words, other, counted, own = group_workspace(
            workspace_ptr, first, blocks, member, group, groups, MEMBERS, 1, BLOCK_K, LANES * BLOCK_K // VEC
        )
    for block in range(first, blocks, groups):
        start, length, columns = column_share(block, member, group, N, K, BLOCK_K)
        mask = column_mask(n, k, length, columns, EVEN)
        g = tl.load(g_ptr + start + offsets, mask=mask, other=0.0).to(COMPUTE)
        y = tl.load(y_ptr + start + offsets, mask=mask, other=0.0).to(COMPUTE)
        row_sum = sum_across_lanes(lane_sum(summand(g, y, mask, LOG), False), False)
        if MEMBERS > 1:
            publish(words_ptr + own, encode(row_sum))
            row_sum = collect_sum(words_ptr, words, other, counted, group, MEMBERS, BLOCK_K, False, COMPUTE)
            clear_own(words_ptr - step + own, 1, BLOCK_K, mask=block >= groups)
            words_ptr += step
        tl.store(dx_ptr + start + offsets, gradient(g, y, row_sum, LOG), mask=mask)
    if MEMBERS > 1:
        clear_last(words_ptr, step, counter_ptr, words, other, group, MEMBERS, 1, BLOCK_K)


@entry()
@triton.jit(do_not_specialize=["group", "blocks", "N", "K"])
def softmax_backward_looped_columns(
    g_ptr,
    y_ptr,
    dx_ptr,
    workspace_ptr,
    group,
    blocks,
    N,
    K,
    LOG: tl.constexpr,
    VEC: tl.constexpr,
    EVEN_K: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    MEMBERS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """``group`` programs for each block of BLOCK_K columns; a program reads its share in tiles of [LANES * DEPTH,
    BLOCK_K].

    All tiles but the last are read in a loop, and again later, from L1 or L2; the last stays in registers.
    EVEN_K: BLOCK_K divides K. INT64_OFFSETS: offsets within a tile need 64 bits.

    g_ptr, y_ptr, dx_ptr: [M, N, K]; workspace_ptr: as in softmax_backward_columns
    """
    tl.static_assert(BLOCK_K > 1)
    TILE: tl.constexpr = LANES * DEPTH
    group, member, groups = group_position(group, MEMBERS)
    K = K // VEC * VEC  # K itself, but the compiler now sees that VEC divides it
    if INT64_OFFSETS:
        K = tl.cast(K, tl.int64)
    n, k, offsets = column_tile(K, LANES, DEPTH, BLOCK_K)
    stride = tl.cast(K, tl.int64)
    first = tl.program_id(0) // group
    if MEMBERS > 1:
        words_ptr, step, counter_ptr, words, other, counted, own = group_workspace(
            workspace_ptr, first, blocks, member, group, groups, MEMBERS, 1, BLOCK_K, LANES * BLOCK_K // VEC
        )
    for block in range(first, blocks, groups):
        start, length, columns = column_share(block, member, group, N, K, BLOCK_K)
        tiles = tl.maximum(length - 1, 0) // TILE
        sums, start = read_tiles(
            g_ptr, y_ptr, start, offsets, tiles, stride, k, columns, LOG, TILE, EVEN_K, LANES, BLOCK_K, STAGES, COMPUTE
        )
        mask = column_mask(n, k, length - tiles * TILE, columns, False)
        g = tl.load(g_ptr + start + offsets, mask=mask, other=0.0).to(COMPUTE)
        y = tl.load(y_ptr + start + offsets, mask=mask, other=0.0).to(COMPUTE)
        row_sum = sum_across_lanes(lane_sum(summand(g, y, mask, LOG), False) + sums, False)
        if MEMBERS > 1:
            publish(words_ptr + own, encode(row_sum))
            row_sum = collect_sum(words_ptr, words, other, counted, group, MEMBERS, BLOCK_K, False, COMPUTE)
            clear_own(words_ptr - step + own, 1, BLOCK_K, mask=block >= groups)
            words_ptr += step
        tl.store(dx_ptr + start + offsets, gradient(g, y, row_sum, LOG), mask=mask)
        write_tiles(
            g_ptr,
            y_ptr,
            dx_ptr,
            start,
            offsets,
            tiles,
            stride,
            k,
            columns,
            row_sum,
            LOG,
            TILE,
            EVEN_K,
            STAGES,
            COMPUTE,
        )
    if MEMBERS > 1:
        clear_last(words_ptr, step, counter_ptr, words, other, group, MEMBERS, 1, BLOCK_K)
