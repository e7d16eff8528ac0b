# SPDX-License-Identifier: Apache-2.0
"""Kernel of the gradients of softmax and log_softmax of columns that are loaded one by one, in a loop."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import encode, publish
from .backward import collect_sum, gradient, summand
from .group import clear_last, clear_own, group_position, group_workspace
from .singly import load_depths
from .tile import column_share, column_tile, for_each_lane, sum_across_lanes


@entry()
@triton.jit(do_not_specialize=["group", "blocks", "N", "K"])
def softmax_backward_looped_single_columns(
    g_ptr,
    y_ptr,
    dx_ptr,
    workspace_ptr,
    group,
    blocks,
    N,
    K,
    LOG: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    MEMBERS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK_K: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """As ``softmax_backward_looped_columns``, but a thread has one offset, to which it adds what is the same for all
    threads: each element of a tile has an address of its own there, 118 registers for 4 elements.

    g_ptr, y_ptr, dx_ptr: [M, N, K]; workspace_ptr: as in softmax_backward_columns
    """
    TILE: tl.constexpr = LANES * DEPTH
    group, member, groups = group_position(group, MEMBERS)
    if INT64_OFFSETS:
        K = tl.cast(K, tl.int64)
    n, k, offsets = column_tile(K, LANES, 1, BLOCK_K)
    step = tl.cast(K, tl.int64) * LANES
    first = tl.program_id(0) // group
    if MEMBERS > 1:
        words_ptr, word_step, counter_ptr, words, other, counted, own = group_workspace(
            workspace_ptr, first, blocks, member, group, groups, MEMBERS, 1, BLOCK_K, LANES * BLOCK_K
        )
    for block in range(first, blocks, groups):
        start, length, columns = column_share(block, member, group, N, K, BLOCK_K)
        exists = (k < columns) & (n >= 0)
        tiles = tl.maximum(length - 1, 0) // TILE
        g_start, y_start, dx_start = g_ptr + start + offsets, y_ptr + start + offsets, dx_ptr + start + offsets
        sums = for_each_lane(0.0, LANES, BLOCK_K, COMPUTE)
        for _ in tl.range(0, tiles, num_stages=1):
            g = load_depths(g_start, step, exists, n, None, 0.0, DEPTH, LANES, "evict_last")
            if LOG:
                for i in tl.static_range(DEPTH):
                    sums += g[i].to(COMPUTE)
            else:
                y = load_depths(y_start, step, exists, n, None, 0.0, DEPTH, LANES, "evict_last")
                for i in tl.static_range(DEPTH):
                    sums += summand(g[i].to(COMPUTE), y[i].to(COMPUTE), exists, False)
            g_start += DEPTH * step
            y_start += DEPTH * step
        dx_start += tiles * (DEPTH * step)
        left = length - tiles * TILE
        g = load_depths(g_start, step, exists, n, left, 0.0, DEPTH, LANES, "")
        y = load_depths(y_start, step, exists, n, left, 0.0, DEPTH, LANES, "")
        for i in tl.static_range(DEPTH):
            mask = exists & (n + i * LANES < left)
            sums += summand(g[i].to(COMPUTE), y[i].to(COMPUTE), mask, LOG)
        row_sum = sum_across_lanes(sums, False)
        if MEMBERS > 1:
            publish(words_ptr + own, encode(row_sum))
            row_sum = collect_sum(words_ptr, words, other, counted, group, MEMBERS, BLOCK_K, False, COMPUTE)
            clear_own(words_ptr - word_step + own, 1, BLOCK_K, mask=block >= groups)
            words_ptr += word_step
        for i in tl.static_range(DEPTH):
            mask = exists & (n + i * LANES < left)
            tl.store(dx_start + i * step, gradient(g[i].to(COMPUTE), y[i].to(COMPUTE), row_sum, LOG), mask=mask)
        for _ in tl.range(0, tiles, num_stages=1):
            g_start -= DEPTH * step
            y_start -= DEPTH * step
            dx_start -= DEPTH * step
            g = load_depths(g_start, step, exists, n, None, 0.0, DEPTH, LANES, "evict_first")
            y = load_depths(y_start, step, exists, n, None, 0.0, DEPTH, LANES, "evict_first")
            for i in tl.static_range(DEPTH):
                dx = gradient(g[i].to(COMPUTE), y[i].to(COMPUTE), row_sum, LOG)
                tl.store(dx_start + i * step, dx, mask=exists, eviction_policy="evict_first")
    if MEMBERS > 1:
        clear_last(words_ptr, word_step, counter_ptr, words, other, group, MEMBERS, 1, BLOCK_K)
