# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Kernels of softmax and log_softmax of rows (K = 1), as :mod:`.forward` says."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .forward import (
    collect_statistics,
    finite,
    merge_edges,
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
    exp,
    lane_max,
    lane_sum,
    lanes_and_depths,
    pack,
    row_edges,
    row_mask,
    row_share,
    row_tile,
    store_mask,
    unpack,
)


@triton.jit
def single(x, LOG: tl.constexpr):
    """Of a row of one element: 1 or 0, and NaN for what is not finite."""
    return x - x if LOG else exp(x - x)


@entry()
@triton.jit(do_not_specialize=["M"])
def softmax_single(x_ptr, out_ptr, M, LOG: tl.constexpr, BLOCK: tl.constexpr, COMPUTE: tl.constexpr):
    """M rows of one element. x_ptr, out_ptr: [M]"""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    if start + BLOCK <= M:  # without a mask, which would make loads of single elements
        x = tl.load(x_ptr + offsets).to(COMPUTE)
        tl.store(out_ptr + offsets, single(x, LOG))
    else:
        x = tl.load(x_ptr + offsets, mask=offsets < M, other=0.0).to(COMPUTE)
        tl.store(out_ptr + offsets, single(x, LOG), mask=offsets < M)


@triton.jit
def rows_in_tiles(
    x_ptr, out_ptr, row, M, N, LOG: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr, COMPUTE: tl.constexpr
):
    """Rows in DEPTH tiles, no power of two, of which only the last has columns that do not exist."""
    column = tl.arange(0, WIDTH)[None, :]
    offsets = row * N + column
    exists = (row < M) & (column >= 0)
    last = (row < M) & (column < N - (DEPTH - 1) * WIDTH)
    x = ()
    for i in tl.static_range(DEPTH):
        mask = exists if i < DEPTH - 1 else last
        x = x + (tl.load(x_ptr + i * WIDTH + offsets, mask=mask, other=float("-inf")).to(COMPUTE),)
    row_max = x[0]
    for i in tl.static_range(1, DEPTH):
        row_max = tl.maximum(row_max, x[i])
    row_max = tl.max(row_max, 1, keep_dims=True)
    row_sum = exp(x[0] - row_max)
    for i in tl.static_range(1, DEPTH):
        row_sum += exp(x[i] - row_max)
    row_sum = tl.sum(row_sum, 1, keep_dims=True)
    for i in tl.static_range(DEPTH):
        mask = exists if i < DEPTH - 1 else last
        tl.store(out_ptr + i * WIDTH + offsets, normalize(x[i], row_max, row_sum, LOG), mask=mask)


@entry()
@triton.jit(do_not_specialize=["M", "N"])
def softmax_rows(
    x_ptr,
    out_ptr,
    M,
    N,
    LOG: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """BLOCK_M whole rows in a tile of DEPTH * WIDTH columns.

    x_ptr, out_ptr: [M, N]
    """
    N = N // VEC * VEC  # N itself, but the compiler now sees that VEC divides it
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    if DEPTH & (DEPTH - 1):
        row = first + tl.arange(0, BLOCK_M)[:, None]
        rows_in_tiles(x_ptr, out_ptr, row, M, N, LOG, DEPTH, WIDTH, COMPUTE)
    else:
        row, depth = lanes_and_depths(BLOCK_M, DEPTH)
        column = depth * WIDTH + tl.arange(0, WIDTH)[None, None, :]
        row += first
        mask = (row < M) & (column < N)
        x = tl.load(x_ptr + row * N + column, mask=mask, other=float("-inf")).to(COMPUTE)
        row_max = lane_max(x, True)
        row_sum = lane_sum(exp(x - row_max), True)
        tl.store(out_ptr + row * N + column, normalize(x, row_max, row_sum, LOG), mask=mask)


@entry()
@triton.jit(do_not_specialize=["M", "N"])
def softmax_unaligned_rows(
    x_ptr,
    out_ptr,
    M,
    N,
    LOG: tl.constexpr,
    VEC: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """One row in a tile of LANES * DEPTH vectors, and its edges; a grid-stride loop over rows.

    x_ptr, out_ptr: [M, N]
    """
    n, k, offsets = row_tile(LANES, DEPTH, VEC)
    for row in tl.range(tl.program_id(0), M, tl.num_programs(0), num_stages=1):
        start, length = row_share(row, 0, 1, N, VEC, True)
        mask = row_mask(n, k, length, False)
        x = tl.load(x_ptr + start + offsets, mask=mask, other=float("-inf")).to(COMPUTE)
        edge_offsets, edge_mask = row_edges(row, N, VEC)
        edge = tl.load(x_ptr + edge_offsets, mask=edge_mask, other=float("-inf")).to(COMPUTE)
        x_max = lane_max(x, True)
        numerator = exp(x - finite(x_max))
        row_max, row_sum = merge_lanes(x_max, lane_sum(numerator, True), True)
        row_max, row_sum = merge_edges(row_max, row_sum, edge)
        tl.store(out_ptr + edge_offsets, normalize(edge, row_max, row_sum, LOG), mask=edge_mask)
        out = normalize_held(x, x_max, numerator, row_max, row_sum, LOG)
        tl.store(out_ptr + start + offsets, out, mask=mask)


@entry()
@triton.jit(do_not_specialize=["group", "M", "N"])
def softmax_split_rows(
    x_ptr,
    out_ptr,
    workspace_ptr,
    group,
    M,
    N,
    LOG: tl.constexpr,
    VEC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    EVEN: tl.constexpr,
    MEMBERS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    PREFETCH: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """``group`` programs for each row; a program's share is a tile of LANES * DEPTH vectors, which stays in registers.

    PREFETCH: while a program waits for the others, its share of the group's next row is on its way. EVEN: all tiles
    are whole.

    x_ptr, out_ptr: [M, N]; workspace_ptr: [M, group, 2] words and [groups] counters
    """
    tl.static_assert(MEMBERS > 1, "a group has at least two programs")
    tl.static_assert(not (EVEN and UNALIGNED), "unaligned rows differ in length")
    group, member, groups = group_position(group, MEMBERS)
    n, k, offsets = row_tile(LANES, DEPTH, VEC)
    first = tl.program_id(0) // group
    words_ptr, step, counter_ptr, words, other, counted, own = group_workspace(
        workspace_ptr, first, M, member, group, groups, MEMBERS, 2, 1, LANES
    )
    if PREFETCH:
        start, length = row_share(first, member, group, N, VEC, UNALIGNED)
        next_x = pack(tl.load(x_ptr + start + offsets, mask=row_mask(n, k, length, EVEN), other=float("-inf")))
    for row in tl.range(first, M, groups, num_stages=1):
        if not PREFETCH:
            start, length = row_share(row, member, group, N, VEC, UNALIGNED)
        mask = row_mask(n, k, length, EVEN)
        if PREFETCH:
            x = unpack(next_x, x_ptr.dtype.element_ty, COMPUTE)
        else:
            x = tl.load(x_ptr + start + offsets, mask=mask, other=float("-inf")).to(COMPUTE)
        if UNALIGNED:
            edge_offsets, edge_mask = row_edges(row, N, VEC)
            edge_mask = edge_mask & (member == 0)
            edge = tl.load(x_ptr + edge_offsets, mask=edge_mask, other=float("-inf")).to(COMPUTE)
        x_max = lane_max(x, True)
        numerator = exp(x - finite(x_max))
        row_max, row_sum = merge_lanes(x_max, lane_sum(numerator, True), True)
        if UNALIGNED:
            row_max, row_sum = merge_edges(row_max, row_sum, edge)
        publish_statistics(words_ptr + own, row_max, row_sum, 1)
        if PREFETCH:
            next_start, next_length = row_share(row + groups, member, group, N, VEC, UNALIGNED)
            next_length = tl.where(row + groups < M, next_length, 0)
            next_mask = row_mask(n, k, next_length, EVEN)
            next_x = pack(tl.load(x_ptr + next_start + offsets, mask=next_mask, other=float("-inf")))
        row_max, row_sum = collect_statistics(words_ptr, words, other, counted, group, MEMBERS, 1, True, COMPUTE)
        clear_own(words_ptr - step + own, 2, 1, mask=row >= groups)
        words_ptr += step
        if UNALIGNED:
            tl.store(out_ptr + edge_offsets, normalize(edge, row_max, row_sum, LOG), mask=edge_mask)
        out = normalize_held(x, x_max, numerator, row_max, row_sum, LOG)
        tl.store(out_ptr + start + offsets, out, mask=store_mask(mask, n, k, length, VEC, EVEN, COMPUTE))
        if PREFETCH:
            start = next_start
            length = next_length
    clear_last(words_ptr, step, counter_ptr, words, other, group, MEMBERS, 2, 1)


@entry()
@triton.jit(do_not_specialize=["group", "M", "N"])
def softmax_looped_rows(
    x_ptr,
    out_ptr,
    workspace_ptr,
    group,
    M,
    N,
    LOG: tl.constexpr,
    VEC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    MEMBERS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """``group`` programs for each row; a program reads its share in tiles of LANES * DEPTH vectors.

    All tiles but the last are read in a loop, and again later, from L1 or L2; the last stays in registers.

    x_ptr, out_ptr: [M, N]; workspace_ptr: [M, group, 2] words and [groups] counters, or None where MEMBERS is 1
    """
    TILE: tl.constexpr = LANES * DEPTH
    group, member, groups = group_position(group, MEMBERS)
    n, k, offsets = row_tile(LANES, DEPTH, VEC)
    first = tl.program_id(0) // group
    if MEMBERS > 1:
        words_ptr, step, counter_ptr, words, other, counted, own = group_workspace(
            workspace_ptr, first, M, member, group, groups, MEMBERS, 2, 1, LANES
        )
    for row in tl.range(first, M, groups, num_stages=1):
        start, length = row_share(row, member, group, N, VEC, UNALIGNED)
        tiles = tl.maximum(length - 1, 0) // TILE
        x_max, x_sum, start = read_tiles(
            x_ptr, start, offsets, tiles, VEC, k, VEC, TILE, True, LANES, 1, 1, COMPUTE, UNALIGNED
        )
        mask = row_mask(n, k, length - tiles * TILE, False)
        held = tl.load(x_ptr + start + offsets, mask=mask, other=float("-inf")).to(COMPUTE)
        if UNALIGNED:
            edge_offsets, edge_mask = row_edges(row, N, VEC)
            edge_mask = edge_mask & (member == 0)
            edge = tl.load(x_ptr + edge_offsets, mask=edge_mask, other=float("-inf")).to(COMPUTE)
        row_max, row_sum = merge_held(x_max, x_sum, held, True, UNALIGNED)
        if UNALIGNED:
            row_max, row_sum = merge_edges(row_max, row_sum, edge)
        if MEMBERS > 1:
            publish_statistics(words_ptr + own, row_max, row_sum, 1)
            row_max, row_sum = collect_statistics(words_ptr, words, other, counted, group, MEMBERS, 1, True, COMPUTE)
            clear_own(words_ptr - step + own, 2, 1, mask=row >= groups)
            words_ptr += step
        out = normalize(held, row_max, row_sum, LOG, UNALIGNED)
        # 3017 x 15775 float64: by another mask 24 bytes of log_softmax would spill; by this one 40 more of softmax.
        last = mask if LOG else store_mask(mask, n, k, length - tiles * TILE, VEC, False, COMPUTE)
        tl.store(out_ptr + start + offsets, out, mask=last)
        if UNALIGNED:
            tl.store(out_ptr + edge_offsets, normalize(edge, row_max, row_sum, LOG), mask=edge_mask)
        write_tiles(
            x_ptr, out_ptr, start, offsets, tiles, VEC, k, VEC, row_max, row_sum, LOG, TILE, True, 1, COMPUTE, UNALIGNED
        )
    if MEMBERS > 1:
        clear_last(words_ptr, step, counter_ptr, words, other, group, MEMBERS, 2, 1)
