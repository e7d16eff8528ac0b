# SPDX-License-Identifier: Apache-2.0
"""Kernels of the gradients of softmax and log_softmax of few long columns, as :mod:`.interleaved` says."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .backward import gradient, summand
from .interleaved import edges, interior, load_tiles, tile_mask


@entry()
@triton.jit(do_not_specialize=["N"])
def softmax_backward_interleaved_sums(
    g_ptr,
    y_ptr,
    sum_ptr,
    N,
    K: tl.constexpr,
    LOG: tl.constexpr,
    UNALIGNED: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
    DEPTH: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Program (m, split) adds up every ``splits``-th DEPTH tiles.

    g_ptr, y_ptr: [M, N, K]; sum_ptr: [M, K, splits], by classes
    """
    row, length, start, inside = interior(N, K, VEC, UNALIGNED)
    split, splits = tl.program_id(1), tl.num_programs(1)
    sums = tl.zeros([BLOCK], COMPUTE)
    for first in range(tl.cast(split, tl.int64) * (STEP * DEPTH), inside, tl.cast(splits, tl.int64) * (STEP * DEPTH)):
        g = load_tiles(g_ptr + start, first, inside, 0.0, BLOCK, STEP, DEPTH, VEC, COMPUTE)
        if LOG:
            for i in tl.static_range(DEPTH):
                sums += g[i]
        else:
            y = load_tiles(y_ptr + start, first, inside, 0.0, BLOCK, STEP, DEPTH, VEC, COMPUTE)
            for i in tl.static_range(DEPTH):
                sums += summand(g[i], y[i], tile_mask(first, inside, i, BLOCK, STEP, VEC), LOG)
    classes = tl.arange(0, BLOCK) % K
    if UNALIGNED:
        edge_offsets, edge_mask, edge_classes = edges(row, length, start, K, VEC)
        edge_g = tl.load(g_ptr + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
        edge_y = tl.load(y_ptr + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
        edge = summand(edge_g, edge_y, edge_mask, LOG)
    for c in tl.static_range(K):
        total = tl.sum(tl.where(classes == c, sums, 0.0))
        if UNALIGNED:
            total += tl.sum(tl.where(edge_classes == c, edge, 0.0))
        tl.store(sum_ptr + (row * K + c) * splits + split, total)


@entry()
@triton.jit(do_not_specialize=["N"])
def softmax_backward_interleaved(
    g_ptr,
    y_ptr,
    dx_ptr,
    sum_ptr,
    N,
    K: tl.constexpr,
    LOG: tl.constexpr,
    UNALIGNED: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
    DEPTH: tl.constexpr,
    SPLITS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Program (m, split) writes the same tiles.

    SPLITS: at least as many as there are, a power of two.

    g_ptr, y_ptr, dx_ptr: [M, N, K]; sum_ptr: [M, K, splits], by classes
    """
    row, length, start, inside = interior(N, K, VEC, UNALIGNED)
    split, splits = tl.program_id(1), tl.num_programs(1)
    classes = tl.arange(0, BLOCK) % K
    row_sum = tl.zeros([BLOCK], COMPUTE)
    if UNALIGNED:
        edge_offsets, edge_mask, edge_classes = edges(row, length, start, K, VEC)
        edge_sum = tl.zeros(edge_classes.shape, COMPUTE)
    for c in tl.static_range(K):
        others = tl.arange(0, SPLITS)
        total = tl.sum(tl.load(sum_ptr + (row * K + c) * splits + others, mask=others < splits, other=0.0))
        row_sum = tl.where(classes == c, total, row_sum)
        if UNALIGNED:
            edge_sum = tl.where(edge_classes == c, total, edge_sum)
    if UNALIGNED:
        edge_g = tl.load(g_ptr + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
        edge_y = tl.load(y_ptr + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
        tl.store(dx_ptr + edge_offsets, gradient(edge_g, edge_y, edge_sum, LOG), mask=edge_mask)
    for first in range(tl.cast(split, tl.int64) * (STEP * DEPTH), inside, tl.cast(splits, tl.int64) * (STEP * DEPTH)):
        g = load_tiles(g_ptr + start, first, inside, 0.0, BLOCK, STEP, DEPTH, VEC, COMPUTE)
        y = load_tiles(y_ptr + start, first, inside, 0.0, BLOCK, STEP, DEPTH, VEC, COMPUTE)
        for i in tl.static_range(DEPTH):
            pointers = dx_ptr + start + first + i * STEP + tl.arange(0, BLOCK)
            mask = tile_mask(first, inside, i, BLOCK, STEP, VEC)
            tl.store(pointers, gradient(g[i], y[i], row_sum, LOG), mask=mask)
