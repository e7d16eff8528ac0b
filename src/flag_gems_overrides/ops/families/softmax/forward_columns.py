# SPDX-License-Identifier: Apache-2.0
"""Kernels of softmax and log_softmax of columns (K > 1), as :mod:`.forward` says."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .forward import (
    collect_statistics,
    finite,
    merge_held,
    merge_lanes,
    normalize,
    normalize_held,
    publish_statistics,
    read_tiles,
    write_tiles,
)
from .group import clear_last, clear_own, group_position, group_workspace
from .tile import (
    column_mask,
    column_share,
    column_tile,
    exp,
    lane_max,
    lane_sum,
    load_short_columns,
    short_blocks,
    short_columns,
    short_mask,
    whole_vectors,
)


@entry()
@triton.jit(do_not_specialize=["M", "N", "K"])
def softmax_short_columns(
    x_ptr,
    out_ptr,
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
    """COLUMNS of the M * K columns, side by side even where they are of different [N, K]: DEPTH elements to each of
    LANES along AXIS. WIDTH: whole [N, K] side by side, the CONSTANT_K columns of each in so many of a tile; both are 0
    otherwise.

    x_ptr, out_ptr: [M, N, K]
    """
    if WIDTH:
        K = CONSTANT_K
        start, offsets, n, mask = short_blocks(M, N, K, LANES, COLUMNS // WIDTH, WIDTH, AXIS)
        x_ptr += start + offsets
        out_ptr += start + offsets
        offsets = 0
    else:
        K = whole_vectors(K, VEC)
        offsets, n, mask = short_columns(M, N, K, LANES, COLUMNS, VEC)
    x = load_short_columns(x_ptr, offsets, mask, n, N, K, float("-inf"), LANES, DEPTH, COMPUTE)
    row_max = x[0]
    for i in tl.static_range(1, DEPTH):
        row_max = tl.maximum(row_max, x[i])
    row_max = tl.max(row_max, AXIS, keep_dims=True)
    row_sum = exp(x[0] - row_max)
    for i in tl.static_range(1, DEPTH):
        row_sum += exp(x[i] - row_max)
    row_sum = tl.sum(row_sum, AXIS, keep_dims=True)
    for i in tl.static_range(DEPTH):
        pointers = out_ptr + i * LANES * tl.cast(K, tl.int64) + offsets
        out = normalize(x[i], row_max, row_sum, LOG)
        tl.store(pointers, out, mask=short_mask(mask, n, N, i, LANES, DEPTH))


@entry()
@triton.jit(do_not_specialize=["group", "blocks", "N", "K"])
def softmax_columns(
    x_ptr,
    out_ptr,
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
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """``group`` programs for each block of BLOCK_K columns; a program's share is a tile of [LANES * DEPTH, BLOCK_K].

    Without groups the loop over blocks is pipelined: STAGES of them are under way. EVEN: all tiles are whole.
    INT64_OFFSETS: offsets within a tile need 64 bits.

    x_ptr, out_ptr: [M, N, K]; workspace_ptr: [blocks, group, 2, BLOCK_K] words and [groups] counters, or None where
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
            workspace_ptr, first, blocks, member, group, groups, MEMBERS, 2, BLOCK_K, LANES * BLOCK_K // VEC
        )
    for block in tl.range(first, blocks, groups, num_stages=STAGES):
        start, length, columns = column_share(block, member, group, N, K, BLOCK_K)
        mask = column_mask(n, k, length, columns, EVEN)
        x = tl.load(x_ptr + start + offsets, mask=mask, other=float("-inf")).to(COMPUTE)
        x_max = lane_max(x, False)
        numerator = exp(x - finite(x_max))
        row_max, row_sum = merge_lanes(x_max, lane_sum(numerator, False), False)
        if MEMBERS > 1:
            publish_statistics(words_ptr + own, row_max, row_sum, BLOCK_K)
            row_max, row_sum = collect_statistics(
                words_ptr, words, other, counted, group, MEMBERS, BLOCK_K, False, COMPUTE
            )
            clear_own(words_ptr - step + own, 2, BLOCK_K, mask=block >= groups)
            words_ptr += step
        out = normalize_held(x, x_max, numerator, row_max, row_sum, LOG)
        tl.store(out_ptr + start + offsets, out, mask=mask)
    if MEMBERS > 1:
        clear_last(words_ptr, step, counter_ptr, words, other, group, MEMBERS, 2, BLOCK_K)


@entry()
@triton.jit(do_not_specialize=["group", "blocks", "N", "K"])
def softmax_looped_columns(
    x_ptr,
    out_ptr,
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

    x_ptr, out_ptr: [M, N, K]; workspace_ptr: as in softmax_columns
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
            workspace_ptr, first, blocks, member, group, groups, MEMBERS, 2, BLOCK_K, LANES * BLOCK_K // VEC
        )
    for block in tl.range(first, blocks, groups, num_stages=STAGES):
        start, length, columns = column_share(block, member, group, N, K, BLOCK_K)
        tiles = tl.maximum(length - 1, 0) // TILE
        x_max, x_sum, start = read_tiles(
            x_ptr, start, offsets, tiles, stride, k, columns, TILE, EVEN_K, LANES, BLOCK_K, STAGES, COMPUTE
        )
        mask = column_mask(n, k, length - tiles * TILE, columns, False)
        held = tl.load(x_ptr + start + offsets, mask=mask, other=float("-inf")).to(COMPUTE)
        row_max, row_sum = merge_held(x_max, x_sum, held, False)
        if MEMBERS > 1:
            publish_statistics(words_ptr + own, row_max, row_sum, BLOCK_K)
            row_max, row_sum = collect_statistics(
                words_ptr, words, other, counted, group, MEMBERS, BLOCK_K, False, COMPUTE
            )
            clear_own(words_ptr - step + own, 2, BLOCK_K, mask=block >= groups)
            words_ptr += step
        out = normalize(held, row_max, row_sum, LOG)
        tl.store(out_ptr + start + offsets, out, mask=mask)
        write_tiles(
            x_ptr,
            out_ptr,
            start,
            offsets,
            tiles,
            stride,
            k,
            columns,
            row_max,
            row_sum,
            LOG,
            TILE,
            EVEN_K,
            STAGES,
            COMPUTE,
        )
    if MEMBERS > 1:
        clear_last(words_ptr, step, counter_ptr, words, other, group, MEMBERS, 2, BLOCK_K)
