# SPDX-License-Identifier: Apache-2.0
"""Kernel of the gradients of softmax and log_softmax of columns, an [N, K] to a program, as :mod:`.blocks` says."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .backward import gradient, summand
from .blocks import block_edges, block_interior, by_classes, load_raw, place


@entry()
@triton.jit(do_not_specialize=["N", "K", "step"])
def softmax_backward_blocks(
    g_ptr,
    y_ptr,
    dx_ptr,
    N,
    K,
    step,
    LOG: tl.constexpr,
    UNALIGNED: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    LOOPED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """The last DEPTH tiles of a block stay in registers; LOOPED: others before them are read again, from cache.

    g_ptr, y_ptr, dx_ptr: [M, N, K]
    """
    row, length, start, inside = block_interior(N, K, VEC, UNALIGNED)
    g_start, y_start, dx_start = g_ptr + start, y_ptr + start, dx_ptr + start
    chunk = step // VEC * VEC * DEPTH
    sums = tl.zeros([BLOCK], COMPUTE)
    first = 0
    if LOOPED:
        first = tl.maximum(inside - 1, 0) // chunk * chunk
        for before in tl.range(0, first, chunk, num_stages=1):
            g = load_raw(g_start, before, inside, step, 0.0, BLOCK, DEPTH, VEC)
            y = load_raw(y_start, before, inside, step, 0.0, BLOCK, DEPTH, VEC)
            for i in tl.static_range(DEPTH):
                _, mask = place(g_start, before, inside, step, i, BLOCK, VEC)
                sums += summand(g[i].to(COMPUTE), y[i].to(COMPUTE), mask, LOG)
    g = load_raw(g_start, first, inside, step, 0.0, BLOCK, DEPTH, VEC)
    y = load_raw(y_start, first, inside, step, 0.0, BLOCK, DEPTH, VEC)
    if UNALIGNED:
        edge_offsets, edge_mask = block_edges(row, length, start, inside, K, VEC, COLUMNS)
        edge_g = tl.load(g_start + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
        edge_y = tl.load(y_start + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
    for i in tl.static_range(DEPTH):
        _, mask = place(g_start, first, inside, step, i, BLOCK, VEC)
        sums += summand(g[i].to(COMPUTE), y[i].to(COMPUTE), mask, LOG)
    totals = tl.sum(by_classes(sums, K, step, 0, 0.0, ROWS, COLUMNS), 0)
    if UNALIGNED:
        totals += tl.sum(summand(edge_g, edge_y, edge_mask, LOG), 0)
        tl.store(dx_start + edge_offsets, gradient(edge_g, edge_y, totals[None, :], LOG), mask=edge_mask)
    row_sum = tl.gather(totals, tl.arange(0, BLOCK) % K, 0)
    for i in tl.static_range(DEPTH):
        pointers, mask = place(dx_start, first, inside, step, i, BLOCK, VEC)
        tl.store(pointers, gradient(g[i].to(COMPUTE), y[i].to(COMPUTE), row_sum, LOG), mask=mask)
    if LOOPED:
        # Backwards: what was read last is the surest to be in cache.
        for after in tl.range(0, first, chunk, num_stages=1):
            before = first - chunk - after
            g = load_raw(g_start, before, inside, step, 0.0, BLOCK, DEPTH, VEC)
            y = load_raw(y_start, before, inside, step, 0.0, BLOCK, DEPTH, VEC)
            for i in tl.static_range(DEPTH):
                pointers, mask = place(dx_start, before, inside, step, i, BLOCK, VEC)
                tl.store(pointers, gradient(g[i].to(COMPUTE), y[i].to(COMPUTE), row_sum, LOG), mask=mask)
