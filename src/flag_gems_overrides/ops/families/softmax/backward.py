# SPDX-License-Identifier: Apache-2.0
"""Kernels of the gradients of softmax and log_softmax: y is the forward's result, g the gradient by it.

softmax:      dx = y * (g - sum(g * y))
log_softmax:  dx = g - exp(y) * sum(g)
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
def summand(g, y, inside, LOG: tl.constexpr):
    if LOG:
        # g alone, for both are 0 outside. Were y in no sum, ptxas would load it after the sum (sm_90, 256 x 256
        # float32: 32 registers and a wait for each vector of y; so, 47 registers and all loads in flight at once).
        return tl.where(inside, g, y)
    else:
        return g * y


@triton.jit
def gradient(g, y, total, LOG: tl.constexpr):
    if LOG:
        return g - exp(y) * total
    else:
        return y * (g - total)


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
    COMPUTE: tl.constexpr,
):
    """Rows of N contiguous elements: BLOCK_M of them in a tile of DEPTH * WIDTH columns, read once."""
    N = N // VEC * VEC  # N itself, but the compiler now sees that VEC divides it
    row, depth = lanes_and_depths(BLOCK_M, DEPTH)
    column = depth * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    row += tl.program_id(0).to(tl.int64) * BLOCK_M
    inside = (row < M) & (column < N)
    g = tl.load(g_ptr + row * N + column, mask=inside, other=0.0).to(COMPUTE)
    y = tl.load(y_ptr + row * N + column, mask=inside, other=0.0).to(COMPUTE)
    total = added(summand(g, y, inside, LOG), True)
    tl.store(dx_ptr + row * N + column, gradient(g, y, total, LOG), mask=inside)


@entry()
@triton.jit(do_not_specialize=["group", "blocks", "N", "K"])
def softmax_backward_split(
    g_ptr,
    y_ptr,
    dx_ptr,
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
    """[M, N, K] reduced over N as in ``softmax_split``; ``words_ptr`` is [blocks, group, statistics] and the counts."""
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
        # In 64 bits the depth is a constant within the instruction; in 32 bits each vector has an address in registers.
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
        block_words = group * STATISTICS
        words, other, counted, own = group_words(part, PARTS, 1, STATISTICS, LANES * BLOCK_K // VEC)
        count_ptr = words_ptr + tl.cast(blocks, tl.int64) * block_words + first
        words_ptr += tl.cast(first, tl.int64) * block_words
        turn = tl.cast(groups, tl.int64) * block_words
    at, rest, columns = share(first, part, group, N, K, INNER, VEC, EDGES, BLOCK_K)
    if AHEAD:
        inside = inside_tile(n, k, rest, columns, INNER, EVEN)
        g = pack(tl.load(g_ptr + at + lanes, mask=inside, other=0.0))
        y = pack(tl.load(y_ptr + at + lanes, mask=inside, other=0.0))
    for block in range(first, blocks, groups):
        if not AHEAD:
            at, rest, columns = share(block, part, group, N, K, INNER, VEC, EDGES, BLOCK_K)
        if LOOP:
            looped = tl.maximum(rest - 1, 0) // TILE
            sums = for_each_lane(0.0, LANES, STATISTICS, COMPUTE)
            for _ in tl.range(0, looped, num_stages=STAGES):
                term = load_tile(g_ptr + at + lanes, k, columns, EVEN_K, "evict_last").to(COMPUTE)
                if not LOG:
                    term *= load_tile(y_ptr + at + lanes, k, columns, EVEN_K, "evict_last").to(COMPUTE)
                sums += added(term, INNER)
                at += TILE * stride
            rest -= looped * TILE
        inside = inside_tile(n, k, rest, columns, INNER, EVEN)
        if AHEAD:
            kept_g = unpack(g, g_ptr.dtype.element_ty, COMPUTE)
            kept_y = unpack(y, y_ptr.dtype.element_ty, COMPUTE)
        else:
            kept_g = tl.load(g_ptr + at + lanes, mask=inside, other=0.0).to(COMPUTE)
            kept_y = tl.load(y_ptr + at + lanes, mask=inside, other=0.0).to(COMPUTE)
        if EDGES:
            edge_at, edge_inside = row_edges(tl.cast(block, tl.int64), N, VEC)
            edge_inside = edge_inside & (part == 0)
            edge_g = tl.load(g_ptr + edge_at, mask=edge_inside, other=0.0).to(COMPUTE)
            edge_y = tl.load(y_ptr + edge_at, mask=edge_inside, other=0.0).to(COMPUTE)
        kept_sums = added(summand(kept_g, kept_y, inside, LOG), INNER)
        if LOOP:
            kept_sums += sums
        total = added_across(kept_sums, INNER)
        if EDGES:
            total += tl.sum(summand(edge_g, edge_y, edge_inside, LOG))
        if PARTS > 1:
            publish(words_ptr + own, total)
            if AHEAD:
                next_at, next_rest, columns = share(block + groups, part, group, N, K, INNER, VEC, EDGES, BLOCK_K)
                next_rest = tl.where(block + groups < blocks, next_rest, 0)
                next_inside = inside_tile(n, k, next_rest, columns, INNER, EVEN)
                g = pack(tl.load(g_ptr + next_at + lanes, mask=next_inside, other=0.0))
                y = pack(tl.load(y_ptr + next_at + lanes, mask=next_inside, other=0.0))
            totals = tl.zeros(words.shape, COMPUTE)
            for behind in range(0, group, PARTS):
                exists = other + behind < group
                read_ptr = words_ptr + behind * STATISTICS + words
                more = tl.load(read_ptr, mask=exists, other=1, volatile=True)
                while not all_there(more):
                    more = tl.load(read_ptr, mask=exists, other=1, volatile=True)
                totals += tl.where(exists & counted, published(more, COMPUTE), 0.0)
            total = added_across(totals, INNER)
            # Who published here has read what was published for the block before: those words are free.
            tl.store(words_ptr - turn + own, 0, mask=block >= groups)
            words_ptr += turn
        if EDGES:
            tl.store(dx_ptr + edge_at, gradient(edge_g, edge_y, total, LOG), mask=edge_inside)
        tl.store(dx_ptr + at + lanes, gradient(kept_g, kept_y, total, LOG), mask=inside)
        if LOOP:
            # Backwards: what was read last is the surest to be in L2 still.
            for _ in tl.range(0, looped, num_stages=STAGES):
                at -= TILE * stride
                tile_g = load_tile(g_ptr + at + lanes, k, columns, EVEN_K, "evict_first").to(COMPUTE)
                tile_y = load_tile(y_ptr + at + lanes, k, columns, EVEN_K, "evict_first").to(COMPUTE)
                tile_g = gradient(tile_g, tile_y, total, LOG)
                store_tile(dx_ptr + at + lanes, tile_g, k, columns, EVEN_K, "evict_first")
        if AHEAD:
            at = next_at
            rest = next_rest
    if PARTS > 1:
        last = is_last(count_ptr, group, "relaxed")
        for behind in range(0, group, PARTS):
            tl.store(words_ptr - turn + behind * STATISTICS + words, 0, mask=(other + behind < group) & last)
