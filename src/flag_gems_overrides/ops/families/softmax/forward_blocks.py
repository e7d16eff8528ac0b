# SPDX-License-Identifier: Apache-2.0
"""Kernel of softmax and log_softmax of columns, an [N, K] to a program, as :mod:`.blocks` says."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from .blocks import block_edges, block_interior, by_classes, load_raw, place
from .forward import finite, normalize
from .tile import exp


@triton.jit
def add_tiles(x, x_max, x_sum, DEPTH: tl.constexpr, COMPUTE: tl.constexpr):
    """(maximum, sum) for each element of a tile with those of DEPTH more."""
    new_max = x_max
    for i in tl.static_range(DEPTH):
        new_max = tl.maximum(new_max, x[i].to(COMPUTE))
    shift = finite(new_max)
    x_sum *= exp(x_max - shift)
    for i in tl.static_range(DEPTH):
        x_sum += exp(x[i].to(COMPUTE) - shift)
    return new_max, x_sum


@entry()
@triton.jit(do_not_specialize=["N", "K", "step"])
def softmax_blocks(
    x_ptr,
    out_ptr,
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
    """As ``softmax_backward_blocks``. x_ptr, out_ptr: [M, N, K]"""
    NONE: tl.constexpr = float("-inf")
    row, length, start, inside = block_interior(N, K, VEC, UNALIGNED)
    x_start, out_start = x_ptr + start, out_ptr + start
    chunk = step // VEC * VEC * DEPTH
    x_max = tl.full([BLOCK], NONE, COMPUTE)
    x_sum = tl.zeros([BLOCK], COMPUTE)
    first = 0
    if LOOPED:
        first = tl.maximum(inside - 1, 0) // chunk * chunk
        for before in tl.range(0, first, chunk, num_stages=1):
            x = load_raw(x_start, before, inside, step, NONE, BLOCK, DEPTH, VEC)
            x_max, x_sum = add_tiles(x, x_max, x_sum, DEPTH, COMPUTE)
    x = load_raw(x_start, first, inside, step, NONE, BLOCK, DEPTH, VEC)
    if UNALIGNED:
        edge_offsets, edge_mask = block_edges(row, length, start, inside, K, VEC, COLUMNS)
        edge = tl.load(x_start + edge_offsets, mask=edge_mask, other=NONE).to(COMPUTE)
    x_max, x_sum = add_tiles(x, x_max, x_sum, DEPTH, COMPUTE)
    class_max, class_sum = tl.full([COLUMNS], NONE, COMPUTE), tl.zeros([COLUMNS], COMPUTE)
    if UNALIGNED:
        class_max = tl.max(edge, 0)
        class_sum = tl.sum(exp(edge - finite(class_max)[None, :]), 0)
    # No more at a time than a tile has: 86 registers of 140 x 84 x 39 bf16, at once 96 (4 warps, sm_90).
    PARTS: tl.constexpr = max(ROWS * COLUMNS // BLOCK, 1)
    for part in tl.static_range(PARTS):
        maxima = by_classes(x_max, K, step, part, NONE, ROWS // PARTS, COLUMNS)
        sums = by_classes(x_sum, K, step, part, 0.0, ROWS // PARTS, COLUMNS)
        new_max = tl.maximum(class_max, tl.max(maxima, 0))
        shift = finite(new_max)
        class_sum = class_sum * exp(class_max - shift) + tl.sum(product(sums, exp(maxima - shift[None, :])), 0)
        class_max = new_max
    if UNALIGNED:
        edge = normalize(edge, class_max[None, :], class_sum[None, :], LOG)
        tl.store(out_start + edge_offsets, edge, mask=edge_mask)
    classes = tl.arange(0, BLOCK) % K
    row_max, row_sum = tl.gather(class_max, classes, 0), tl.gather(class_sum, classes, 0)
    for i in tl.static_range(DEPTH):
        pointers, mask = place(out_start, first, inside, step, i, BLOCK, VEC)
        tl.store(pointers, normalize(x[i].to(COMPUTE), row_max, row_sum, LOG), mask=mask)
    if LOOPED:
        # Backwards: what was read last is the surest to be in cache.
        for after in tl.range(0, first, chunk, num_stages=1):
            before = first - chunk - after
            x = load_raw(x_start, before, inside, step, NONE, BLOCK, DEPTH, VEC)
            for i in tl.static_range(DEPTH):
                pointers, mask = place(out_start, before, inside, step, i, BLOCK, VEC)
                tl.store(pointers, normalize(x[i].to(COMPUTE), row_max, row_sum, LOG), mask=mask)
