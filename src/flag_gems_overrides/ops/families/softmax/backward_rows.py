# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc"
"""Kernels of the gradients of softmax and log_softmax of rows (K = 1), as :mod:`.backward` says."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from ...launch.workspace import encode, publish
from .backward import collect_sum, gradient, read_tiles, summand, write_tiles
from .group import clear_last, clear_own, group_position, group_workspace
from .tile import lane_sum, lanes_and_depths, pack, row_edges, row_mask, row_share, row_tile, sum_across_lanes, unpack


@triton.jit
def single(g, y, LOG: tl.constexpr):
    return gradient(g, y, g, LOG) if LOG else gradient(g, y, g * y, LOG)


@entry()
@triton.jit(do_not_specialize=["M"])
def softmax_backward_single(g_ptr, y_ptr, dx_ptr, M, LOG: tl.constexpr, BLOCK: tl.constexpr, COMPUTE: tl.constexpr):
    """M rows of one element. g_ptr, y_ptr, dx_ptr: [M]"""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    if start + BLOCK <= M:  # without a mask, which would make loads of single elements
        g = tl.load(g_ptr + offsets).to(COMPUTE)
        y = tl.load(y_ptr + offsets).to(COMPUTE)
        tl.store(dx_ptr + offsets, single(g, y, LOG))
    else:
        g = tl.load(g_ptr + offsets, mask=offsets < M, other=0.0).to(COMPUTE)
        y = tl.load(y_ptr + offsets, mask=offsets < M, other=0.0).to(COMPUTE)
        tl.store(dx_ptr + offsets, single(g, y, LOG), mask=offsets < M)


@triton.jit
def held_summand(g, y, exists, dtype: tl.constexpr, LOG: tl.constexpr, COMPUTE: tl.constexpr):
    """``summand`` of what ``pack`` gave. Of 16 bits only pairs are held: numbers are made of them here, and once more
    for the gradient. The compiler would keep those made here, but it does not know that ``tl.where`` changes nothing:
    both are 0 where they do not exist.

    Two programs of 16 warps then fit where one did. log_softmax 4096 x 12672 float16: 76.8 us, by one 95.6 (H200).
    """
    if dtype.primitive_bitwidth == 16:
        term = unpack(tl.where(exists, g, y), dtype, COMPUTE)
        return term if LOG else product(term, unpack(tl.where(exists, y, g), dtype, COMPUTE))
    else:
        return summand(g.to(COMPUTE), y.to(COMPUTE), exists, LOG)


@triton.jit
def held_gradient(g, y, row_sum, dtype: tl.constexpr, LOG: tl.constexpr, COMPUTE: tl.constexpr):
    return gradient(unpack(g, dtype, COMPUTE), unpack(y, dtype, COMPUTE), row_sum, LOG)


@triton.jit
def row_in_tiles(
    g_ptr, y_ptr, dx_ptr, offset, N, LOG: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr, COMPUTE: tl.constexpr
):
    """A row of 16 bits in DEPTH tiles, of which only the last has columns that do not exist."""
    column = tl.arange(0, WIDTH)[None, None, :]
    offsets = offset + column
    # Always, but the compiler does not know it, as ``held_summand`` says.
    exists = tl.arange(0, WIDTH // 2)[None, None, :] * 2 < N
    last = column < N - (DEPTH - 1) * WIDTH
    dtype: tl.constexpr = g_ptr.dtype.element_ty
    g = ()
    y = ()
    for i in tl.static_range(DEPTH):
        mask = column >= 0 if i < DEPTH - 1 else last
        g = g + (pack(tl.load(g_ptr + i * WIDTH + offsets, mask=mask, other=0.0)),)
        y = y + (pack(tl.load(y_ptr + i * WIDTH + offsets, mask=mask, other=0.0)),)
    sums = held_summand(g[0], y[0], exists, dtype, LOG, COMPUTE)
    for i in tl.static_range(1, DEPTH):
        sums += held_summand(g[i], y[i], exists, dtype, LOG, COMPUTE)
    row_sum = tl.sum(sums)
    for i in tl.static_range(DEPTH):
        mask = column >= 0 if i < DEPTH - 1 else last
        dx = held_gradient(g[i], y[i], row_sum, dtype, LOG, COMPUTE)
        tl.store(dx_ptr + i * WIDTH + offsets, dx, mask=mask)


@entry()
@triton.jit(do_not_specialize=["M", "N"])
def softmax_backward_rows(
    g_ptr,
    y_ptr,
    dx_ptr,
    M,
    N,
    LOG: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
    PACKED: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """BLOCK_M whole rows in a tile of DEPTH * WIDTH columns. PACKED: one row of 16 bits, in DEPTH tiles.

    g_ptr, y_ptr, dx_ptr: [M, N]
    """
    N = N // VEC * VEC  # N itself, but the compiler now sees that VEC divides it
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    if PACKED:
        tl.static_assert(BLOCK_M == 1, "one row")
        row_in_tiles(g_ptr, y_ptr, dx_ptr, first * N, N, LOG, DEPTH, WIDTH, COMPUTE)
    else:
        row, depth = lanes_and_depths(BLOCK_M, DEPTH)
        column = depth * WIDTH + tl.arange(0, WIDTH)[None, None, :]
        row += first
        mask = (row < M) & (column < N)
        g = tl.load(g_ptr + row * N + column, mask=mask, other=0.0).to(COMPUTE)
        y = tl.load(y_ptr + row * N + column, mask=mask, other=0.0).to(COMPUTE)
        row_sum = lane_sum(summand(g, y, mask, LOG), True)
        dx = gradient(g, y, row_sum, LOG, DEPTH * WIDTH <= 4096)
        tl.store(dx_ptr + row * N + column, dx, mask=mask)


@entry()
@triton.jit(do_not_specialize=["M", "N"])
def softmax_backward_unaligned_rows(
    g_ptr,
    y_ptr,
    dx_ptr,
    M,
    N,
    LOG: tl.constexpr,
    VEC: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """One row in a tile of LANES * DEPTH vectors, and its edges; a grid-stride loop over rows.

    g_ptr, y_ptr, dx_ptr: [M, N]
    """
    n, k, offsets = row_tile(LANES, DEPTH, VEC)
    dtype: tl.constexpr = g_ptr.dtype.element_ty
    for row in range(tl.program_id(0), M, tl.num_programs(0)):
        start, length = row_share(row, 0, 1, N, VEC, True)
        mask = row_mask(n, k, length, False)
        g = pack(tl.load(g_ptr + start + offsets, mask=mask, other=0.0))
        y = pack(tl.load(y_ptr + start + offsets, mask=mask, other=0.0))
        edge_offsets, edge_mask = row_edges(row, N, VEC)
        edge_g = tl.load(g_ptr + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
        edge_y = tl.load(y_ptr + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
        exists = row_mask(n, tl.arange(0, g.shape[2])[None, None, :], length, False)
        term = held_summand(g, y, exists, dtype, LOG, COMPUTE)
        row_sum = sum_across_lanes(lane_sum(term, True), True)
        row_sum += tl.sum(summand(edge_g, edge_y, edge_mask, LOG))
        tl.store(dx_ptr + edge_offsets, gradient(edge_g, edge_y, row_sum, LOG), mask=edge_mask)
        dx = held_gradient(g, y, row_sum, dtype, LOG, COMPUTE)
        tl.store(dx_ptr + start + offsets, dx, mask=mask)


@entry()
@triton.jit(do_not_specialize=["group", "M", "N"])
def softmax_backward_split_rows(
    g_ptr,
    y_ptr,
    dx_ptr,
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

    g_ptr, y_ptr, dx_ptr: [M, N]; workspace_ptr: [M, group] words and [groups] counters
    """
    tl.static_assert(MEMBERS > 1, "a group has at least two programs")
    tl.static_assert(not (EVEN and UNALIGNED), "unaligned rows differ in length")
    group, member, groups = group_position(group, MEMBERS)
    n, k, offsets = row_tile(LANES, DEPTH, VEC)
    first = tl.program_id(0) // group
    words_ptr, step, counter_ptr, words, other, counted, own = group_workspace(
        workspace_ptr, first, M, member, group, groups, MEMBERS, 1, 1, LANES
    )
    if PREFETCH:
        start, length = row_share(first, member, group, N, VEC, UNALIGNED)
        mask = row_mask(n, k, length, EVEN)
        next_g = pack(tl.load(g_ptr + start + offsets, mask=mask, other=0.0))
        next_y = pack(tl.load(y_ptr + start + offsets, mask=mask, other=0.0))
    for row in range(first, M, groups):
        if not PREFETCH:
            start, length = row_share(row, member, group, N, VEC, UNALIGNED)
        mask = row_mask(n, k, length, EVEN)
        if PREFETCH:
            g = unpack(next_g, g_ptr.dtype.element_ty, COMPUTE)
            y = unpack(next_y, y_ptr.dtype.element_ty, COMPUTE)
        else:
            g = tl.load(g_ptr + start + offsets, mask=mask, other=0.0).to(COMPUTE)
            y = tl.load(y_ptr + start + offsets, mask=mask, other=0.0).to(COMPUTE)
        if UNALIGNED:
            edge_offsets, edge_mask = row_edges(row, N, VEC)
            edge_mask = edge_mask & (member == 0)
            edge_g = tl.load(g_ptr + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
            edge_y = tl.load(y_ptr + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
        row_sum = sum_across_lanes(lane_sum(summand(g, y, mask, LOG), True), True)
        if UNALIGNED:
            row_sum += tl.sum(summand(edge_g, edge_y, edge_mask, LOG))
        publish(words_ptr + own, encode(row_sum))
        if PREFETCH:
            next_start, next_length = row_share(row + groups, member, group, N, VEC, UNALIGNED)
            next_length = tl.where(row + groups < M, next_length, 0)
            next_mask = row_mask(n, k, next_length, EVEN)
            next_g = pack(tl.load(g_ptr + next_start + offsets, mask=next_mask, other=0.0))
            next_y = pack(tl.load(y_ptr + next_start + offsets, mask=next_mask, other=0.0))
        row_sum = collect_sum(words_ptr, words, other, counted, group, MEMBERS, 1, True, COMPUTE)
        clear_own(words_ptr - step + own, 1, 1, mask=row >= groups)
        words_ptr += step
        if UNALIGNED:
            tl.store(dx_ptr + edge_offsets, gradient(edge_g, edge_y, row_sum, LOG), mask=edge_mask)
        tl.store(dx_ptr + start + offsets, gradient(g, y, row_sum, LOG), mask=mask)
        if PREFETCH:
            start = next_start
            length = next_length
    clear_last(words_ptr, step, counter_ptr, words, other, group, MEMBERS, 1, 1)


@entry()
@triton.jit(do_not_specialize=["group", "M", "N"])
def softmax_backward_looped_rows(
    g_ptr,
    y_ptr,
    dx_ptr,
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

    g_ptr, y_ptr, dx_ptr: [M, N]; workspace_ptr: [M, group] words and [groups] counters, or None where MEMBERS is 1
    """
    TILE: tl.constexpr = LANES * DEPTH
    group, member, groups = group_position(group, MEMBERS)
    n, k, offsets = row_tile(LANES, DEPTH, VEC)
    first = tl.program_id(0) // group
    if MEMBERS > 1:
        words_ptr, step, counter_ptr, words, other, counted, own = group_workspace(
            workspace_ptr, first, M, member, group, groups, MEMBERS, 1, 1, LANES
        )
    for row in range(first, M, groups):
        start, length = row_share(row, member, group, N, VEC, UNALIGNED)
        tiles = tl.maximum(length - 1, 0) // TILE
        sums, start = read_tiles(
            g_ptr, y_ptr, start, offsets, tiles, VEC, k, VEC, LOG, TILE, True, LANES, 1, 1, COMPUTE
        )
        mask = row_mask(n, k, length - tiles * TILE, False)
        g = tl.load(g_ptr + start + offsets, mask=mask, other=0.0).to(COMPUTE)
        y = tl.load(y_ptr + start + offsets, mask=mask, other=0.0).to(COMPUTE)
        if UNALIGNED:
            edge_offsets, edge_mask = row_edges(row, N, VEC)
            edge_mask = edge_mask & (member == 0)
            edge_g = tl.load(g_ptr + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
            edge_y = tl.load(y_ptr + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
        row_sum = sum_across_lanes(lane_sum(summand(g, y, mask, LOG), True) + sums, True)
        if UNALIGNED:
            row_sum += tl.sum(summand(edge_g, edge_y, edge_mask, LOG))
        if MEMBERS > 1:
            publish(words_ptr + own, encode(row_sum))
            row_sum = collect_sum(words_ptr, words, other, counted, group, MEMBERS, 1, True, COMPUTE)
            clear_own(words_ptr - step + own, 1, 1, mask=row >= groups)
            words_ptr += step
        if UNALIGNED:
            tl.store(dx_ptr + edge_offsets, gradient(edge_g, edge_y, row_sum, LOG), mask=edge_mask)
        tl.store(dx_ptr + start + offsets, gradient(g, y, row_sum, LOG), mask=mask)
        write_tiles(g_ptr, y_ptr, dx_ptr, start, offsets, tiles, VEC, k, VEC, row_sum, LOG, TILE, True, 1, COMPUTE)
    if MEMBERS > 1:
        clear_last(words_ptr, step, counter_ptr, words, other, group, MEMBERS, 1, 1)
