# SPDX-License-Identifier: Apache-2.0
"""Kernels of softmax and log_softmax of long columns of no whole vectors, as :mod:`.strided` says."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from .blocks import by_classes
from .forward import finite, normalize
from .strided import edges, load_tiles, part, rounds, tile_mask
from .tile import exp


@entry()
@triton.jit(do_not_specialize=["N", "K", "step"])
def softmax_strided_statistics(
    x_ptr,
    max_ptr,
    sum_ptr,
    N,
    K,
    step,
    UNALIGNED: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """As ``softmax_backward_strided_sums``.

    x_ptr: [M, N, K]; max_ptr, sum_ptr: [M, splits, K] or [M, splits, step], by classes
    """
    NONE: tl.constexpr = float("-inf")
    step = step // VEC * VEC
    row, start, inside, before = part(N, K, step, VEC, BLOCK, UNALIGNED)
    split = tl.program_id(1)
    first, stride, count = rounds(split, step * DEPTH, inside)
    maxima = tl.full([BLOCK], NONE, COMPUTE)
    sums = tl.zeros([BLOCK], COMPUTE)
    for _ in range(count):
        x = load_tiles(x_ptr + start, first, inside, before, step, NONE, BLOCK, DEPTH, VEC, COMPUTE)
        new_maxima = maxima
        for i in tl.static_range(DEPTH):
            new_maxima = tl.maximum(new_maxima, x[i])
        shift = finite(new_maxima)
        sums *= exp(maxima - shift)
        for i in tl.static_range(DEPTH):
            sums += exp(x[i] - shift)
        maxima = new_maxima
        first += stride
    own = row * tl.num_programs(1) + split
    if COLUMNS:
        class_max, class_sum = tl.full([COLUMNS], NONE, COMPUTE), tl.zeros([COLUMNS], COMPUTE)
        PARTS: tl.constexpr = max(ROWS * COLUMNS // BLOCK, 1)
        for i in tl.static_range(PARTS):
            some_maxima = by_classes(maxima, K, step, i, NONE, ROWS // PARTS, COLUMNS)
            some_sums = by_classes(sums, K, step, i, 0.0, ROWS // PARTS, COLUMNS)
            new_max = tl.maximum(class_max, tl.max(some_maxima, 0))
            shift = finite(new_max)
            some_sums = product(some_sums, exp(some_maxima - shift[None, :]))
            class_sum = class_sum * exp(class_max - shift) + tl.sum(some_sums, 0)
            class_max = new_max
        column = tl.arange(0, COLUMNS)
        tl.store(max_ptr + own * K + column, class_max, mask=column < K)
        tl.store(sum_ptr + own * K + column, class_sum, mask=column < K)
    else:
        column = tl.arange(0, BLOCK)
        mask = column < (step - before) // VEC * VEC
        tl.store(max_ptr + own * step + before + column, maxima, mask=mask)
        tl.store(sum_ptr + own * step + before + column, sums, mask=mask)


@entry()
@triton.jit(do_not_specialize=["N", "K", "parts"])
def softmax_strided_merge(
    x_ptr,
    out_ptr,
    max_ptr,
    sum_ptr,
    row_max_ptr,
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

    x_ptr, out_ptr: [M, N, K]; max_ptr, sum_ptr: [M, parts, K]; row_max_ptr, row_sum_ptr: [M, K], by classes
    """
    NONE: tl.constexpr = float("-inf")
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    each = tl.arange(0, ROWS)[:, None]
    maxima = tl.full([ROWS, COLUMNS], NONE, COMPUTE)
    sums = tl.zeros([ROWS, COLUMNS], COMPUTE)
    for first in range(0, parts, ROWS):
        mask = (first + each < parts) & (column < K)[None, :]
        read = (row * parts + first + each) * K + column[None, :]
        more_maxima = tl.load(max_ptr + read, mask=mask, other=NONE)
        more_sums = tl.load(sum_ptr + read, mask=mask, other=0.0)
        new_maxima = tl.maximum(maxima, more_maxima)
        shift = finite(new_maxima)
        sums = product(sums, exp(maxima - shift)) + product(more_sums, exp(more_maxima - shift))
        maxima = new_maxima
    row_max = tl.max(maxima, 0)
    row_sum = tl.sum(product(sums, exp(maxima - finite(row_max)[None, :])), 0)
    if UNALIGNED:
        first_edge, first_mask, last_edge, last_mask = edges(row, N, K, column, VEC)
        a = tl.load(x_ptr + first_edge, mask=first_mask, other=NONE).to(COMPUTE)
        b = tl.load(x_ptr + last_edge, mask=last_mask, other=NONE).to(COMPUTE)
        new_max = tl.maximum(row_max, tl.maximum(a, b))
        shift = finite(new_max)
        row_sum = row_sum * exp(row_max - shift) + (exp(a - shift) + exp(b - shift))
        row_max = new_max
        tl.store(out_ptr + first_edge, normalize(a, row_max, row_sum, LOG), mask=first_mask)
        tl.store(out_ptr + last_edge, normalize(b, row_max, row_sum, LOG), mask=last_mask)
    tl.store(row_max_ptr + row * K + column, row_max, mask=column < K)
    tl.store(row_sum_ptr + row * K + column, row_sum, mask=column < K)


@entry()
@triton.jit(do_not_specialize=["N", "K", "step"])
def softmax_strided(
    x_ptr,
    out_ptr,
    row_max_ptr,
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
    """Backwards, programs too: what was read last is the surest to be in cache.

    x_ptr, out_ptr: [M, N, K]; row_max_ptr, row_sum_ptr: [M, K], by classes
    """
    step = step // VEC * VEC
    row, start, inside, before = part(N, K, step, VEC, BLOCK, UNALIGNED)
    first, stride, count = rounds(tl.num_programs(1) - 1 - tl.program_id(1), step * DEPTH, inside)
    column = before + tl.arange(0, BLOCK)
    row_max = tl.load(row_max_ptr + row * K + column % K, mask=column < step, other=0.0)
    row_sum = tl.load(row_sum_ptr + row * K + column % K, mask=column < step, other=1.0)
    first += count * stride
    for _ in range(count):
        first -= stride
        x = load_tiles(x_ptr + start, first, inside, before, step, 0.0, BLOCK, DEPTH, VEC, COMPUTE)
        for i in tl.static_range(DEPTH):
            pointers = out_ptr + start + first + i * step + before + tl.arange(0, BLOCK)
            mask = tile_mask(first, inside, i, before, step, BLOCK, VEC)
            tl.store(pointers, normalize(x[i], row_max, row_sum, LOG), mask=mask)
