# SPDX-License-Identifier: Apache-2.0
"""Kernels of softmax and log_softmax.

With top = max(x) and total = sum(exp(x - top)) over the reduced dimension,

    softmax(x) = exp(x - top) / total        log_softmax(x) = (x - top) - log(total)

NaN and infinities come out as in PyTorch without a special case: a NaN or +inf makes total NaN, and a row of -inf
has x - top = NaN. Only a part of a row may be all -inf without harm, which is what ``finite`` is for.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import is_last
from .tile import (
    added,
    added_across,
    all_there,
    exp,
    for_each_lane,
    group_words,
    inside_tile,
    lanes_and_depths,
    largest,
    load_tile,
    pack,
    publish,
    published,
    row_edges,
    share,
    store_tile,
    unpack,
)


@triton.jit
def finite(top):
    """``top``, or 0 where that is -inf: what to subtract in a part of a row, so that exp(-inf) is 0 and not NaN."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def normalize(x, top, total, LOG: tl.constexpr):
    if LOG:
        return (x - top) - tl.log(total)
    else:
        return exp(x - top) * (1.0 / total)


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
    """Rows of N contiguous elements: BLOCK_M of them in a tile of DEPTH * WIDTH columns, read once."""
    N = N // VEC * VEC  # N itself, but the compiler now sees that VEC divides it
    row, depth = lanes_and_depths(BLOCK_M, DEPTH)
    column = depth * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    row += tl.program_id(0).to(tl.int64) * BLOCK_M
    inside = (row < M) & (column < N)
    x = tl.load(x_ptr + row * N + column, mask=inside, other=float("-inf")).to(COMPUTE)
    top = largest(x, True)
    total = added(exp(x - top), True)
    tl.store(out_ptr + row * N + column, normalize(x, top, total, LOG), mask=inside)


@triton.jit
def largest_across(x, INNER: tl.constexpr):
    """What ``largest`` left, across threads: a scalar, or [1, 1, BLOCK_K]."""
    if INNER:
        return tl.max(x)
    else:
        return tl.max(tl.max(x, 1, keep_dims=True), 0, keep_dims=True)


@triton.jit
def merge(tops, totals, INNER: tl.constexpr):
    """(top, total) of a row from those of its parts."""
    top = largest_across(tops, INNER)
    return top, added_across(totals * exp(tops - finite(top)), INNER)


@entry()
@triton.jit(do_not_specialize=["group", "blocks", "N", "K"])
def softmax_split(
    x_ptr,
    out_ptr,
    words_ptr,
    group,
    blocks,
    N,
    K,
    LOG: tl.constexpr,
    INNER: tl.constexpr,
    VEC: tl.constexpr,
    EDGES: tl.constexpr,
    EVEN: tl.constexpr,
    EVEN_K: tl.constexpr,
    FAR: tl.constexpr,
    PARTS: tl.constexpr,
    LOOP: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
    AHEAD: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """[M, N, K] reduced over N, by ``group`` programs for each of ``blocks`` blocks of BLOCK_K columns.

    A program reads its share of N in tiles of [LANES * DEPTH, BLOCK_K]: all but the last in a loop (LOOP), which are
    read again later, from L2 as the plan sees to it; the last stays in registers. Between the two the programs of a
    group exchange (top, total) through ``words_ptr``: [blocks, group, 2, statistics] and one for each group, zeros
    that are left zeros. While they wait the first tile of the next block is on its way (AHEAD). They wait for each
    other, so a group asks for a cooperative launch. What others published is read of PARTS programs at a time.

    Without LOOP and groups, the blocks themselves are a loop that Triton pipelines: STAGES of them are under way.

    INNER stands for K = 1 (see ``share``). EVEN says that all tiles are whole, EVEN_K that BLOCK_K divides K, FAR that
    offsets within a tile need 64 bits.
    """
    TILE: tl.constexpr = DEPTH * LANES
    STATISTICS: tl.constexpr = 1 if INNER else BLOCK_K
    if PARTS == 1:
        group = 1  # known when compiling
    part = tl.program_id(0) % group
    groups = tl.num_programs(0) // group
    lane, depth = lanes_and_depths(LANES, DEPTH)
    n = lane + LANES * depth
    k = tl.arange(0, BLOCK_K)[None, None, :]
    if INNER:
        # In 64 bits the depth is a constant within the instruction; in 32 bits each vector has an address in registers,
        # which spilled 8 bytes of rows of 32000 bfloat16 on sm_90.
        lanes = tl.cast(lane * VEC + k, tl.int64) + depth * (LANES * VEC)
        stride = VEC
    else:
        K = K // VEC * VEC  # K itself, but the compiler now sees that VEC divides it
        if FAR:
            K = tl.cast(K, tl.int64)
        stride = tl.cast(K, tl.int64)
        lanes = (lane * K + k) + depth * (LANES * K)
    first = tl.program_id(0) // group
    if PARTS > 1:
        block_words = group * 2 * STATISTICS
        words, other, counted, own = group_words(part, PARTS, 2, STATISTICS, LANES * BLOCK_K // VEC)
        count_ptr = words_ptr + tl.cast(blocks, tl.int64) * block_words + first
        words_ptr += tl.cast(first, tl.int64) * block_words
        turn = tl.cast(groups, tl.int64) * block_words
    at, rest, columns = share(first, part, group, N, K, INNER, VEC, EDGES, BLOCK_K)
    if AHEAD:
        x = pack(tl.load(x_ptr + at + lanes, mask=inside_tile(n, k, rest, columns, INNER, EVEN), other=float("-inf")))
    for block in tl.range(first, blocks, groups, num_stages=STAGES):
        if not AHEAD:
            at, rest, columns = share(block, part, group, N, K, INNER, VEC, EDGES, BLOCK_K)
        if LOOP:
            looped = tl.maximum(rest - 1, 0) // TILE
            top = for_each_lane(float("-inf"), LANES, STATISTICS, COMPUTE)
            total = for_each_lane(0.0, LANES, STATISTICS, COMPUTE)
            for _ in tl.range(0, looped, num_stages=STAGES):
                tile = load_tile(x_ptr + at + lanes, k, columns, EVEN_K, "evict_last").to(COMPUTE)
                new = tl.maximum(top, largest(tile, INNER))
                total = total * exp(top - finite(new)) + added(exp(tile - finite(new)), INNER)
                top = new
                at += TILE * stride
            rest -= looped * TILE
        inside = inside_tile(n, k, rest, columns, INNER, EVEN)
        if AHEAD:
            kept = unpack(x, x_ptr.dtype.element_ty, COMPUTE)
        else:
            kept = tl.load(x_ptr + at + lanes, mask=inside, other=float("-inf")).to(COMPUTE)
        if EDGES:
            row = tl.cast(block, tl.int64)
            edge_at, edge_inside = row_edges(row, N, VEC)
            edge_inside = edge_inside & (part == 0)
            edge = tl.load(x_ptr + edge_at, mask=edge_inside, other=float("-inf")).to(COMPUTE)
        seen = largest(kept, INNER)
        if LOOP:
            seen = tl.maximum(seen, top)
        e = exp(kept - finite(seen))
        part_total = added(e, INNER)
        if LOOP:
            part_total += total * exp(top - finite(seen))
        top, total = merge(seen, part_total, INNER)
        if EDGES:
            new = tl.maximum(top, tl.max(edge))
            total = total * exp(top - finite(new)) + tl.sum(exp(edge - finite(new)))
            top = new
        if PARTS > 1:
            publish(words_ptr + own, top)
            publish(words_ptr + own + STATISTICS, total)
            if AHEAD:
                next_at, next_rest, columns = share(block + groups, part, group, N, K, INNER, VEC, EDGES, BLOCK_K)
                next_rest = tl.where(block + groups < blocks, next_rest, 0)
                next_inside = inside_tile(n, k, next_rest, columns, INNER, EVEN)
                x = pack(tl.load(x_ptr + next_at + lanes, mask=next_inside, other=float("-inf")))
            tops = tl.full(words.shape, float("-inf"), COMPUTE)
            totals = tl.zeros(words.shape, COMPUTE)
            for behind in range(0, group, PARTS):
                exists = other + behind < group
                read_ptr = words_ptr + behind * (2 * STATISTICS) + words
                more_tops = tl.load(read_ptr, mask=exists, other=1, volatile=True)
                more_totals = tl.load(read_ptr + STATISTICS, mask=exists, other=1, volatile=True)
                while not all_there(tl.where(more_tops == 0, 0, more_totals)):
                    more_tops = tl.load(read_ptr, mask=exists, other=1, volatile=True)
                    more_totals = tl.load(read_ptr + STATISTICS, mask=exists, other=1, volatile=True)
                more_tops = tl.where(exists & counted, published(more_tops, COMPUTE), float("-inf"))
                more_totals = tl.where(exists & counted, published(more_totals, COMPUTE), 0.0)
                larger = tl.maximum(tops, more_tops)
                totals = totals * exp(tops - finite(larger)) + more_totals * exp(more_tops - finite(larger))
                tops = larger
            top, total = merge(tops, totals, INNER)
            # Who published here has read what was published for the block before: those words are free.
            tl.store(words_ptr - turn + own, 0, mask=block >= groups)
            tl.store(words_ptr - turn + own + STATISTICS, 0, mask=block >= groups)
            words_ptr += turn
        if EDGES:
            tl.store(out_ptr + edge_at, normalize(edge, top, total, LOG), mask=edge_inside)
        # With loops around there are no registers to keep e in.
        out = normalize(kept, top, total, LOG) if LOG or LOOP else e * (exp(seen - top) * (1.0 / total))
        tl.store(out_ptr + at + lanes, out, mask=inside)
        if LOOP:
            # Backwards: what was read last is the surest to be in L2 still.
            for _ in tl.range(0, looped, num_stages=STAGES):
                at -= TILE * stride
                tile = load_tile(x_ptr + at + lanes, k, columns, EVEN_K, "evict_first").to(COMPUTE)
                tile = normalize(tile, top, total, LOG)
                store_tile(out_ptr + at + lanes, tile, k, columns, EVEN_K, "evict_first")
        if AHEAD:
            at = next_at
            rest = next_rest
    if PARTS > 1:
        last = is_last(count_ptr, group, "relaxed")
        for behind in range(0, group, PARTS):
            written_ptr = words_ptr - turn + behind * (2 * STATISTICS) + words
            exists = (other + behind < group) & last
            tl.store(written_ptr, 0, mask=exists)
            tl.store(written_ptr + STATISTICS, 0, mask=exists)
