# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Means and sums of squared deviations over N of [M, N, K] with few N and K, read as :mod:`.short_classes` says."""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from .columns import load_tile
from .moments import first_of, merged, moments_of_one_tile, store_moments


@entry()
@triton.jit
def moments_of_short_classes_kernel(
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
    BLOCK_M: tl.constexpr,
    LANES: tl.constexpr,
    DEPTH: tl.constexpr,
    REST: tl.constexpr,
    VECTOR: tl.constexpr,
    EVICT: tl.constexpr,
):
    """Reduce N of [M, N, K] elements to [M, K]. Grid and parameters as in ``reduce_short_classes_kernel`` and
    ``moments_of_rows_kernel``; inputs are no means.
    """
    tl.static_assert(squares_ptr is None and LANES % K == 0 and LANES % VECTOR == 0)
    block = tl.program_id(0).to(tl.int64) * BLOCK_M
    m = tl.arange(0, BLOCK_M)[:, None]
    mask = m < M - block
    lane = tl.arange(0, LANES)[None, :]
    length = N * K // VECTOR * VECTOR
    x_ptr += block * length
    starts = m * length
    first = lane // K
    tiles = load_tile(x_ptr + (starts + lane), mask, first, N, K, OP, LANES // K, DEPTH, REST, EVICT)
    shift = first_of(x_ptr + (starts + lane % K), mask, OP)
    zeros = tl.full([BLOCK_M, LANES], 0.0, OP.accumulator)
    mean, squares, lane_count = moments_of_one_tile(tiles, shift, zeros, first, N, OP, LANES // K, DEPTH, REST)
    CLASSES: tl.constexpr = [BLOCK_M, LANES // K, K]
    lane_count = tl.broadcast_to(lane_count, mean.shape)
    total = tl.full([BLOCK_M, K], N, OP.accumulator)
    mean, squares = merged(
        tl.reshape(mean, CLASSES), tl.reshape(squares, CLASSES), tl.reshape(lane_count, CLASSES), total, 1
    )
    k = tl.arange(0, K)[None, :]
    store_moments(
        mean,
        squares,
        total,
        first_of(x_ptr + (starts + k), mask, OP),
        out_ptr + block * K,
        mean_ptr if mean_ptr is None else mean_ptr + block * K,
        partial_squares_ptr,
        partial_mean_ptr,
        partial_count_ptr,
        arrived_ptr,
        offsets=m * K + k,
        mask=mask,
        size=tl.full([], M, tl.int64) * K,
        count=count,
        OP=OP,
        BLOCK_SPLITS=1,
    )
