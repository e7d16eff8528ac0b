# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Means and sums of squared deviations over N of [M, N, K] with few K, read as :mod:`.classes` says."""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from .moments import first_of, in_share, lane_moments, store_moments
from .row import load_edges, whole_vectors


@entry()
@triton.jit
def moments_of_classes_kernel(
    x_ptr,
    squares_ptr,
    out_ptr,
    mean_ptr,
    partial_squares_ptr,
    partial_mean_ptr,
    partial_count_ptr,
    arrived_ptr,
    M,
    N,
    weight,
    count,
    OP: tl.constexpr,
    K: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STEP: tl.constexpr,
    DEPTH: tl.constexpr,
    TAIL: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGE_LANES: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """Reduce N of [M, N, K] elements to [M, K]. Grid and parameters as in ``reduce_classes_kernel`` and
    ``moments_of_columns_kernel``; inputs are no means.
    """
    tl.static_assert(squares_ptr is None)
    tl.static_assert(STEP % VECTOR == 0 and STEP % K == 0)
    m = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK_K)[None, :]
    lane = tl.arange(0, BLOCK_N)[None, :]
    split = tl.program_id(1)
    length = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32) * K
    start, head, body = whole_vectors(m, length, VECTOR)
    body_ptr = x_ptr + (start + head) // VECTOR * VECTOR
    first = split * STEP + lane
    lane_class = (head + lane) % K
    shift = first_of(x_ptr + start + lane_class, (lane < STEP) & (N > 0), OP)
    stride = tl.num_programs(1) * STEP
    zeros = tl.full([1, BLOCK_N], 0.0, OP.accumulator)
    mean, squares, lane_count = lane_moments(
        body_ptr + first, shift, zeros, lane < STEP, first, body, stride, 1, OP, DEPTH, STAGES, EVICT, TAIL
    )
    lane_count = tl.where(lane < STEP, lane_count, 0.0)
    if EDGE_LANES:
        edges, positions = load_edges(x_ptr, start, head, body, length, split == 0, OP, VECTOR, EDGE_LANES)
        edge_lane = tl.arange(0, EDGE_LANES)[None, :]
        edge_mask = (split == 0) & tl.where(edge_lane < VECTOR, edge_lane < head, positions < length)
        edge_class = positions % K
        edges = tl.where(edge_mask, edges - first_of(x_ptr + start + edge_class, edge_mask, OP), 0.0)
    means = tl.full([1, BLOCK_K], 0.0, OP.accumulator)
    sums = tl.full([1, BLOCK_K], 0.0, OP.accumulator)
    totals = tl.full([1, BLOCK_K], 0.0, OP.accumulator)
    # All means, then all deviations from them, so that classes do not wait for each other.
    # 20000 x 1000 x 3 bf16: 57.7 us, otherwise 58.2 (H100).
    lane_center = zeros
    if EDGE_LANES:
        edge_center = tl.zeros_like(edges)
    share = in_share(body, split * STEP, stride, STEP)
    for c in tl.static_range(K):
        before = (c + K - head % K) % K  # elements of the body before the first of the class
        total = (tl.maximum(share - before, 0) + K - 1) // K
        in_class = lane_class == c
        center = tl.sum(tl.where(in_class, lane_count * mean, 0.0))
        if EDGE_LANES:
            in_edges = edge_mask & (edge_class == c)
            total += tl.where(split == 0, N - (tl.maximum(body - before, 0) + K - 1) // K, 0)
            center += tl.sum(tl.where(in_edges, edges, 0.0))
        total = total.to(OP.accumulator)
        center /= tl.maximum(total, 1.0)
        means = tl.where(k == c, center, means)
        totals = tl.where(k == c, total, totals)
        lane_center = tl.where(in_class, center, lane_center)
        if EDGE_LANES:
            edge_center = tl.where(edge_class == c, center, edge_center)
    delta = mean - lane_center
    squares += lane_count * delta * delta
    for c in tl.static_range(K):
        class_sum = tl.sum(tl.where(lane_class == c, squares, 0.0))
        if EDGE_LANES:
            above = edges - edge_center
            class_sum += tl.sum(tl.where(edge_mask & (edge_class == c), above * above, 0.0))
        sums = tl.where(k == c, class_sum, sums)
    store_moments(
        means,
        sums,
        totals,
        first_of(x_ptr + start + k, (k < K) & (N > 0), OP),
        out_ptr,
        mean_ptr,
        partial_squares_ptr,
        partial_mean_ptr,
        partial_count_ptr,
        arrived_ptr,
        offsets=m * K + k,
        mask=k < K,
        size=tl.full([], M, tl.int64) * K,
        count=count,
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )
