# SPDX-License-Identifier: Apache-2.0
"""Kernel of softmax and log_softmax of columns that are loaded one by one, in a loop, as :mod:`.singly` says."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .forward import collect_statistics, finite, merge_lanes, normalize, publish_statistics
from .group import clear_last, clear_own, group_position, group_workspace
from .singly import load_depths
from .tile import column_share, column_tile, exp, for_each_lane


@triton.jit
def power(x):
    """Not ``exp`` of float64. softmax 14 x 10 x 1712 x 197: 588 us, by ``exp`` 701 (H100)."""
    return tl.exp(x) if x.dtype == tl.float64 else exp(x)


@triton.jit
def normalize_one(x, row_max, row_sum, LOG: tl.constexpr):
    if LOG:
        return normalize(x, row_max, row_sum, LOG)
    else:
        return power(x - row_max) * (1.0 / row_sum)


@triton.jit
def add_depths(x, x_max, x_sum, DEPTH: tl.constexpr, COMPUTE: tl.constexpr):
    """(maximum, sum) for each lane with those of DEPTH more elements."""
    new_max = x_max
    for i in tl.static_range(DEPTH):
        new_max = tl.maximum(new_max, x[i].to(COMPUTE))
    shift = finite(new_max)
    x_sum *= power(x_max - shift)
    for i in tl.static_range(DEPTH):
        x_sum += power(x[i].to(COMPUTE) - shift)
    return new_max, x_sum


@entry()
@triton.jit(do_not_specialize=["group", "blocks", "N", "K"])
def softmax_looped_single_columns(
    x_ptr,
    out_ptr,
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
    """x_ptr, out_ptr: [M, N, K]; workspace_ptr: as in softmax_columns"""
    TILE: tl.constexpr = LANES * DEPTH
    NONE: tl.constexpr = float("-inf")
    group, member, groups = group_position(group, MEMBERS)
    if INT64_OFFSETS:
        K = tl.cast(K, tl.int64)
    n, k, offsets = column_tile(K, LANES, 1, BLOCK_K)
    step = tl.cast(K, tl.int64) * LANES
    first = tl.program_id(0) // group
    if MEMBERS > 1:
        words_ptr, word_step, counter_ptr, words, other, counted, own = group_workspace(
            workspace_ptr, first, blocks, member, group, groups, MEMBERS, 2, BLOCK_K, LANES * BLOCK_K
        )
    for block in tl.range(first, blocks, groups, num_stages=1):
        start, length, columns = column_share(block, member, group, N, K, BLOCK_K)
        exists = (k < columns) & (n >= 0)
        tiles = tl.maximum(length - 1, 0) // TILE
        x_start, out_start = x_ptr + start + offsets, out_ptr + start + offsets
        x_max = for_each_lane(NONE, LANES, BLOCK_K, COMPUTE)
        x_sum = for_each_lane(0.0, LANES, BLOCK_K, COMPUTE)
        for _ in tl.range(0, tiles, num_stages=1):
            x = load_depths(x_start, step, exists, n, None, NONE, DEPTH, LANES, "evict_last")
            x_max, x_sum = add_depths(x, x_max, x_sum, DEPTH, COMPUTE)
            x_start += DEPTH * step
        out_start += tiles * (DEPTH * step)
        left = length - tiles * TILE
        x = load_depths(x_start, step, exists, n, left, NONE, DEPTH, LANES, "")
        x_max, x_sum = add_depths(x, x_max, x_sum, DEPTH, COMPUTE)
        row_max, row_sum = merge_lanes(x_max, x_sum, False)
        if MEMBERS > 1:
            publish_statistics(words_ptr + own, row_max, row_sum, BLOCK_K)
            row_max, row_sum = collect_statistics(
                words_ptr, words, other, counted, group, MEMBERS, BLOCK_K, False, COMPUTE
            )
            clear_own(words_ptr - word_step + own, 2, BLOCK_K, mask=block >= groups)
            words_ptr += word_step
        for i in tl.static_range(DEPTH):
            mask = exists & (n + i * LANES < left)
            tl.store(out_start + i * step, normalize_one(x[i].to(COMPUTE), row_max, row_sum, LOG), mask=mask)
        for _ in tl.range(0, tiles, num_stages=1):
            x_start -= DEPTH * step
            out_start -= DEPTH * step
            x = load_depths(x_start, step, exists, n, None, NONE, DEPTH, LANES, "evict_first")
            for i in tl.static_range(DEPTH):
                out = normalize_one(x[i].to(COMPUTE), row_max, row_sum, LOG)
                tl.store(out_start + i * step, out, mask=exists, eviction_policy="evict_first")
    if MEMBERS > 1:
        clear_last(words_ptr, word_step, counter_ptr, words, other, group, MEMBERS, 2, BLOCK_K)
