# SPDX-License-Identifier: Apache-2.0
"""Kernels of softmax and log_softmax of few long columns, as :mod:`.interleaved` says."""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.products import product
from .forward import finite, merge_edges, normalize
from .interleaved import edges, interior, load_tiles, tile_mask
from .tile import exp


@entry()
@triton.jit(do_not_specialize=["N"])
def softmax_interleaved_statistics(
    x_ptr,
    max_ptr,
    sum_ptr,
    N,
    K: tl.constexpr,
    UNALIGNED: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
    DEPTH: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """As ``softmax_backward_interleaved_sums``.

    x_ptr: [M, N, K]; max_ptr, sum_ptr: [M, K, splits], by classes
    """
    row, length, start, inside = interior(N, K, VEC, UNALIGNED)
    split, splits = tl.program_id(1), tl.num_programs(1)
    maxima = tl.full([BLOCK], float("-inf"), COMPUTE)
    sums = tl.zeros([BLOCK], COMPUTE)
    for first in range(tl.cast(split, tl.int64) * (STEP * DEPTH), inside, tl.cast(splits, tl.int64) * (STEP * DEPTH)):
        x = load_tiles(x_ptr + start, first, inside, float("-inf"), BLOCK, STEP, DEPTH, VEC, COMPUTE)
        new_maxima = maxima
        for i in tl.static_range(DEPTH):
            new_maxima = tl.maximum(new_maxima, x[i])
        sums *= exp(maxima - finite(new_maxima))
        for i in tl.static_range(DEPTH):
            sums += exp(x[i] - finite(new_maxima))
        maxima = new_maxima
    classes = tl.arange(0, BLOCK) % K
    if UNALIGNED:
        edge_offsets, edge_mask, edge_classes = edges(row, length, start, K, VEC)
        edge = tl.load(x_ptr + edge_offsets, mask=edge_mask, other=float("-inf")).to(COMPUTE)
    for c in tl.static_range(K):
        row_max = tl.max(tl.where(classes == c, maxima, float("-inf")))
        row_sum = tl.sum(tl.where(classes == c, product(sums, exp(maxima - finite(row_max))), 0.0))
        if UNALIGNED:
            row_max, row_sum = merge_edges(row_max, row_sum, tl.where(edge_classes == c, edge, float("-inf")))
        tl.store(max_ptr + (row * K + c) * splits + split, row_max)
        tl.store(sum_ptr + (row * K + c) * splits + split, row_sum)


@entry()
@triton.jit(do_not_specialize=["N"])
def softmax_interleaved(
    x_ptr,
    out_ptr,
    max_ptr,
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
    """As ``softmax_backward_interleaved``.

    x_ptr, out_ptr: [M, N, K]; max_ptr, sum_ptr: [M, K, splits], by classes
    """
    row, length, start, inside = interior(N, K, VEC, UNALIGNED)
    split, splits = tl.program_id(1), tl.num_programs(1)
    classes = tl.arange(0, BLOCK) % K
    row_max, row_sum = tl.zeros([BLOCK], COMPUTE), tl.full([BLOCK], 1.0, COMPUTE)
    if UNALIGNED:
        edge_offsets, edge_mask, edge_classes = edges(row, length, start, K, VEC)
        edge_max, edge_sum = tl.zeros(edge_classes.shape, COMPUTE), tl.full(edge_classes.shape, 1.0, COMPUTE)
    for c in tl.static_range(K):
        others = tl.arange(0, SPLITS)
        read = (row * K + c) * splits + others
        maxima = tl.load(max_ptr + read, mask=others < splits, other=float("-inf"))
        sums = tl.load(sum_ptr + read, mask=others < splits, other=0.0)
        c_max = tl.max(maxima)
        c_sum = tl.sum(product(sums, exp(maxima - finite(c_max))))
        row_max, row_sum = tl.where(classes == c, c_max, row_max), tl.where(classes == c, c_sum, row_sum)
        if UNALIGNED:
            edge_max = tl.where(edge_classes == c, c_max, edge_max)
            edge_sum = tl.where(edge_classes == c, c_sum, edge_sum)
    if UNALIGNED:
        edge = tl.load(x_ptr + edge_offsets, mask=edge_mask, other=0.0).to(COMPUTE)
        tl.store(out_ptr + edge_offsets, normalize(edge, edge_max, edge_sum, LOG), mask=edge_mask)
    for first in range(tl.cast(split, tl.int64) * (STEP * DEPTH), inside, tl.cast(splits, tl.int64) * (STEP * DEPTH)):
        x = load_tiles(x_ptr + start, first, inside, 0.0, BLOCK, STEP, DEPTH, VEC, COMPUTE)
        for i in tl.static_range(DEPTH):
            pointers = out_ptr + start + first + i * STEP + tl.arange(0, BLOCK)
            mask = tile_mask(first, inside, i, BLOCK, STEP, VEC)
            tl.store(pointers, normalize(x[i], row_max, row_sum, LOG), mask=mask)
