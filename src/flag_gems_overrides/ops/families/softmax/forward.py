# SPDX-License-Identifier: Apache-2.0
"""Kernels of softmax and log_softmax.

With row_max = max(x) and row_sum = sum(exp(x - row_max)) over the reduced dimension,

    softmax(x) = exp(x - row_max) / row_sum        log_softmax(x) = (x - row_max) - log(row_sum)

NaN and infinities come out as in PyTorch without a special case: a NaN or +inf makes row_sum NaN, and a row of -inf
has x - row_max = NaN. Only a part of a row may be all -inf without harm, which is what ``finite`` is for.

    kernel                      reduces      a program reads
    softmax_single              N = 1        BLOCK elements
    softmax_short_columns       K > 1        COLUMNS whole columns in one tile
    softmax_rows                K = 1        BLOCK_M whole rows in one tile
    softmax_unaligned_rows      K = 1        one row in one tile, and its edges
    softmax_split_rows          K = 1        its share of a row in one tile; a group of programs has the row
    softmax_looped_rows         K = 1        a row, or its share of it, in a loop, and again to write the result
    softmax_columns             K > 1        BLOCK_K columns, or its share of them, in one tile
    softmax_looped_columns      K > 1        BLOCK_K columns, or its share of them, in a loop, and again

Programs of a group wait for each other, so all of them must be running (cooperative launch).
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from ...launch.workspace import collect_two, decode, encode, publish
from .group import clear_last, clear_own, group_position, group_workspace
from .tile import (
    column_mask,
    column_max,
    column_share,
    column_sum,
    column_tile,
    exp,
    for_each_lane,
    lane_max,
    lane_sum,
    lanes_and_depths,
    load_tile,
    max_across_lanes,
    pack,
    row_edges,
    row_mask,
    row_share,
    row_tile,
    short_columns,
    store_tile,
    sum_across_lanes,
    unpack,
)


@triton.jit
def finite(x_max):
    """``x_max``, or 0 where that is -inf: what to subtract in a part of a row, so that exp(-inf) is 0 and not NaN."""
    return tl.where(x_max == float("-inf"), 0.0, x_max)


@triton.jit
def normalize(x, row_max, row_sum, LOG: tl.constexpr):
    if LOG:
        return (x - row_max) - tl.log(row_sum)
    else:
        return exp(x - row_max) * (1.0 / row_sum)


@triton.jit
def normalize_held(x, x_max, numerator, row_max, row_sum, LOG: tl.constexpr):
    """``normalize`` where numerator = exp(x - x_max) is in registers still."""
    if LOG:
        return normalize(x, row_max, row_sum, LOG)
    else:
        return numerator * (exp(x_max - row_max) * (1.0 / row_sum))


@triton.jit
def merge_lanes(maxima, sums, CONTIGUOUS: tl.constexpr):
    """(maximum, sum) of a row from those of its lanes, or of the programs of a group."""
    row_max = max_across_lanes(maxima, CONTIGUOUS)
    return row_max, sum_across_lanes(product(sums, exp(maxima - finite(row_max))), CONTIGUOUS)


@triton.jit
def merge_edges(row_max, row_sum, edge):
    """(maximum, sum) of a row from those of its interior, and its edges."""
    new_max = tl.maximum(row_max, tl.max(edge))
    return new_max, row_sum * exp(row_max - finite(new_max)) + tl.sum(exp(edge - finite(new_max)))


@triton.jit
def publish_statistics(own_ptr, row_max, row_sum, STATISTICS: tl.constexpr):
    publish(own_ptr, encode(row_max))
    publish(own_ptr + STATISTICS, encode(row_sum))


@triton.jit
def collect_statistics(
    words_ptr,
    words,
    other,
    counted,
    group,
    MEMBERS: tl.constexpr,
    STATISTICS: tl.constexpr,
    CONTIGUOUS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """(maximum, sum) of a row from what the programs of the group publish of it."""
    maxima = tl.full(words.shape, float("-inf"), COMPUTE)
    sums = tl.zeros(words.shape, COMPUTE)
    for first in range(0, group, MEMBERS):
        mask = other + first < group
        read_ptr = words_ptr + first * (2 * STATISTICS) + words
        more_maxima, more_sums = collect_two(read_ptr, read_ptr + STATISTICS, mask)
        more_maxima = tl.where(mask & counted, decode(more_maxima, COMPUTE), float("-inf"))
        more_sums = tl.where(mask & counted, decode(more_sums, COMPUTE), 0.0)
        new_maxima = tl.maximum(maxima, more_maxima)
        sums = sums * exp(maxima - finite(new_maxima)) + more_sums * exp(more_maxima - finite(new_maxima))
        maxima = new_maxima
    return merge_lanes(maxima, sums, CONTIGUOUS)


@triton.jit
def read_tiles(
    x_ptr,
    start,
    offsets,
    tiles,
    stride,
    k,
    columns,
    TILE: tl.constexpr,
    EVEN_K: tl.constexpr,
    LANES: tl.constexpr,
    STATISTICS: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """(maximum, sum) for each lane of ``tiles`` whole tiles, and where the next one starts."""
    CONTIGUOUS: tl.constexpr = STATISTICS == 1
    x_max = for_each_lane(float("-inf"), LANES, STATISTICS, COMPUTE)
    x_sum = for_each_lane(0.0, LANES, STATISTICS, COMPUTE)
    for _ in tl.range(0, tiles, num_stages=STAGES):
        x = load_tile(x_ptr + start + offsets, k, columns, EVEN_K, "evict_last").to(COMPUTE)
        new_max = tl.maximum(x_max, lane_max(x, CONTIGUOUS))
        x_sum = x_sum * exp(x_max - finite(new_max)) + lane_sum(exp(x - finite(new_max)), CONTIGUOUS)
        x_max = new_max
        start += TILE * stride
    return x_max, x_sum, start


@triton.jit
def merge_held(x_max, x_sum, held, CONTIGUOUS: tl.constexpr):
    """(maximum, sum) of a row from those of the tiles that were read in a loop, and the tile in registers."""
    held_max = tl.maximum(lane_max(held, CONTIGUOUS), x_max)
    held_sum = lane_sum(exp(held - finite(held_max)), CONTIGUOUS)
    held_sum += x_sum * exp(x_max - finite(held_max))
    return merge_lanes(held_max, held_sum, CONTIGUOUS)


@triton.jit
def write_tiles(
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
    LOG: tl.constexpr,
    TILE: tl.constexpr,
    EVEN_K: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """The result of the ``tiles`` before ``start``. Backwards: what was read last is the surest to be in cache."""
    for _ in tl.range(0, tiles, num_stages=STAGES):
        start -= TILE * stride
        x = load_tile(x_ptr + start + offsets, k, columns, EVEN_K, "evict_first").to(COMPUTE)
        x = normalize(x, row_max, row_sum, LOG)
        store_tile(out_ptr + start + offsets, x, k, columns, EVEN_K, "evict_first")


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


@entry()
@triton.jit(do_not_specialize=["M", "N", "K"])
def softmax_short_columns(
    x_ptr,
    out_ptr,
    M,
    N,
    K,
    LOG: tl.constexpr,
    BLOCK_N: tl.constexpr,
    COLUMNS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """COLUMNS of the M * K columns in one tile, side by side even where they are of different [N, K].

    x_ptr, out_ptr: [M, N, K]
    """
    offsets, mask = short_columns(M, N, K, BLOCK_N, COLUMNS)
    x = tl.load(x_ptr + offsets, mask=mask, other=float("-inf")).to(COMPUTE)
    row_max = column_max(x)
    row_sum = column_sum(exp(x - row_max))
    tl.store(out_ptr + offsets, normalize(x, row_max, row_sum, LOG), mask=mask)


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
    row, depth = lanes_and_depths(BLOCK_M, DEPTH)
    column = depth * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    row += tl.program_id(0).to(tl.int64) * BLOCK_M
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
        tl.store(out_ptr + start + offsets, out, mask=mask)
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
        x_max, x_sum, start = read_tiles(x_ptr, start, offsets, tiles, VEC, k, VEC, TILE, True, LANES, 1, 1, COMPUTE)
        mask = row_mask(n, k, length - tiles * TILE, False)
        held = tl.load(x_ptr + start + offsets, mask=mask, other=float("-inf")).to(COMPUTE)
        if UNALIGNED:
            edge_offsets, edge_mask = row_edges(row, N, VEC)
            edge_mask = edge_mask & (member == 0)
            edge = tl.load(x_ptr + edge_offsets, mask=edge_mask, other=float("-inf")).to(COMPUTE)
        row_max, row_sum = merge_held(x_max, x_sum, held, True)
        if UNALIGNED:
            row_max, row_sum = merge_edges(row_max, row_sum, edge)
        if MEMBERS > 1:
            publish_statistics(words_ptr + own, row_max, row_sum, 1)
            row_max, row_sum = collect_statistics(words_ptr, words, other, counted, group, MEMBERS, 1, True, COMPUTE)
            clear_own(words_ptr - step + own, 2, 1, mask=row >= groups)
            words_ptr += step
        if UNALIGNED:
            tl.store(out_ptr + edge_offsets, normalize(edge, row_max, row_sum, LOG), mask=edge_mask)
        out = normalize(held, row_max, row_sum, LOG)
        tl.store(out_ptr + start + offsets, out, mask=mask)
        write_tiles(x_ptr, out_ptr, start, offsets, tiles, VEC, k, VEC, row_max, row_sum, LOG, TILE, True, 1, COMPUTE)
    if MEMBERS > 1:
        clear_last(words_ptr, step, counter_ptr, words, other, group, MEMBERS, 2, 1)


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
