# SPDX-License-Identifier: Apache-2.0
"""Kernels of the gradients of softmax and log_softmax of long columns of no whole vectors, as :mod:`.strided` says."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from .backward import gradient, summand
from .blocks import by_classes
from .strided import edges, load_tiles, part, rounds, tile_mask


@entry()
@triton.jit(do_not_specialize=["N", "K", "step"])
def softmax_backward_strided_sums(
    g_ptr,
    y_ptr,
    sum_ptr,
    N,
    K,
    step,
    LOG: tl.constexpr,
    UNALIGNED: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Program (block, split, m) adds up every ``splits``-th DEPTH tiles of a block. Where a tile has all of ``step``,
    it adds up the sums of each class too: ROWS at least ``step`` / K and COLUMNS at least K, powers of two; else 0.

    g_ptr, y_ptr: [M, N, K]; sum_ptr: [M, splits, K] or [M, splits, step], by classes
    """
    step = step // VEC * VEC
    row, start, inside, before = part(N, K, step, VEC, BLOCK, UNALIGNED)
    split = tl.program_id(1)
    first, stride, count = rounds(split, step * DEPTH, inside)
    sums = tl.zeros([BLOCK], COMPUTE)
    for _ in range(count):
        g = load_tiles(g_ptr + start, first, inside, before, step, 0.0, BLOCK, DEPTH, VEC, COMPUTE)
        if LOG:
            for i in tl.static_range(DEPTH):
                sums += g[i]
        else:
            y = load_tiles(y_ptr + start, first, inside, before, step, 0.0, BLOCK, DEPTH, VEC, COMPUTE)
            for i in tl.static_range(DEPTH):
                sums += summand(g[i], y[i], True, False)
        first += stride
    own = row * tl.num_programs(1) + split
    if COLUMNS:
        class_sum = tl.zeros([COLUMNS], COMPUTE)
        PARTS: tl.constexpr = max(ROWS * COLUMNS // BLOCK, 1)
        for i in tl.static_range(PARTS):
            class_sum += tl.sum(by_classes(sums, K, step, i, 0.0, ROWS // PARTS, COLUMNS), 0)
        column = tl.arange(0, COLUMNS)
        tl.store(sum_ptr + own * K + column, class_sum, mask=column < K)
    else:
        column = tl.arange(0, BLOCK)
        tl.store(sum_ptr + own * step + before + column, sums, mask=column < (step - before) // VEC * VEC)


@entry()
@triton.jit(do_not_specialize=["N", "K", "parts"])
def softmax_backward_strided_merge(
    g_ptr,
    y_ptr,
    dx_ptr,
    sum_ptr,
    row_sum_ptr,
    N,
    K,
    parts,
    LOG: tl.constexpr,
    UNALIGNED: tl.constexpr,
    VEC: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """COLUMNS columns of an [N, K], whose edges it writes.

    g_ptr, y_ptr, dx_ptr: [M, N, K]; sum_ptr: [M, parts, K]; row_sum_ptr: [M, K], by classes
    """
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    each = tl.arange(0, ROWS)[:, None]
    sums = tl.zeros([ROWS, COLUMNS], COMPUTE)
    for first in range(0, parts, ROWS):
        mask = (first + each < parts) & (column < K)[None, :]
        sums += tl.load(sum_ptr + (row * parts + first + each) * K + column[None, :], mask=mask, other=0.0)
    row_sum = tl.sum(sums, 0)
    if UNALIGNED:
        first_edge, first_mask, last_edge, last_mask = edges(row, N, K, column, VEC)
        g_a = tl.load(g_ptr + first_edge, mask=first_mask, other=0.0).to(COMPUTE)
        y_a = tl.load(y_ptr + first_edge, mask=first_mask, other=0.0).to(COMPUTE)
        g_b = tl.load(g_ptr + last_edge, mask=last_mask, other=0.0).to(COMPUTE)
        y_b = tl.load(y_ptr + last_edge, mask=last_mask, other=0.0).to(COMPUTE)
        row_sum += summand(g_a, y_a, first_mask, LOG) + summand(g_b, y_b, last_mask, LOG)
        tl.store(dx_ptr + first_edge, gradient(g_a, y_a, row_sum, LOG), mask=first_mask)
        tl.store(dx_ptr + last_edge, gradient(g_b, y_b, row_sum, LOG), mask=last_mask)
    tl.store(row_sum_ptr + row * K + column, row_sum, mask=column < K)


@entry()
@triton.jit(do_not_specialize=["N", "K", "step"])
def softmax_backward_strided(
    g_ptr,
    y_ptr,
    dx_ptr,
    row_sum_ptr,
    N,
    K,
    step,
    LOG: tl.constexpr,
    UNALIGNED: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """As ``softmax_strided``.

    g_ptr, y_ptr, dx_ptr: [M, N, K]; row_sum_ptr: [M, K], by classes
    """
    step = step // VEC * VEC
    row, start, inside, before = part(N, K, step, VEC, BLOCK, UNALIGNED)
    first, stride, count = rounds(tl.num_programs(1) - 1 - tl.program_id(1), step * DEPTH, inside)
    column = before + tl.arange(0, BLOCK)
    row_sum = tl.load(row_sum_ptr + row * K + column % K, mask=column < step, other=0.0)
    first += count * stride
    for _ in range(count):
        first -= stride
        g = load_tiles(g_ptr + start, first, inside, before, step, 0.0, BLOCK, DEPTH, VEC, COMPUTE)
        y = load_tiles(y_ptr + start, first, inside, before, step, 0.0, BLOCK, DEPTH, VEC, COMPUTE)
        for i in tl.static_range(DEPTH):
            pointers = dx_ptr + start + first + i * step + before + tl.arange(0, BLOCK)
            mask = tile_mask(first, inside, i, before, step, BLOCK, VEC)
            tl.store(pointers, gradient(g[i], y[i], row_sum, LOG), mask=mask)
