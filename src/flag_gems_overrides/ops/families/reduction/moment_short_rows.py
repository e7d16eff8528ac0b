# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, misc, no-untyped-def, var-annotated"
"""Means and sums of squared deviations of rows of a contiguous [M, N] with few N, read as :mod:`.short_rows` says."""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.vectors import together
from .moments import moments_of_elements, store_moments
from .short_rows import load_rows, offsets_of_rows


@triton.jit
def _moments(
    x_ptr,
    left,
    OP: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    VECTOR: tl.constexpr,
    EVICT: tl.constexpr,
    ALL: tl.constexpr,
):
    """(First elements, means above them, sums of squares), each [ROWS // VECTOR, VECTOR]; of no elements 0."""
    if N == 0:
        zeros = tl.zeros([ROWS // VECTOR, VECTOR], OP.accumulator)
        return zeros, zeros, zeros
    else:
        elements = load_rows(x_ptr, left, OP, N, ROWS, VECTOR, EVICT, ALL)
        shifts = ()
        means = ()
        squares = ()
        for row in tl.static_range(VECTOR):
            own = ()
            for i in tl.static_range(N):
                own = own + (elements[row * N + i],)
            mean, sum_of_squares = moments_of_elements(own, N)
            shifts = shifts + (own[0],)
            means = means + (mean,)
            squares = squares + (sum_of_squares,)
        return together(shifts, 0, VECTOR), together(means, 0, VECTOR), together(squares, 0, VECTOR)


@entry()
@triton.jit
def moments_of_short_rows_kernel(
    x_ptr,
    squares_ptr,
    out_ptr,
    mean_ptr,
    partial_squares_ptr,
    partial_mean_ptr,
    partial_count_ptr,
    arrived_ptr,
    M,
    count,
    OP: tl.constexpr,
    N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    VECTOR: tl.constexpr,
    EVICT: tl.constexpr,
):
    """Reduce N of elements. Grid and parameters as in ``reduce_short_rows_kernel`` and ``moments_of_rows_kernel``."""
    tl.static_assert(squares_ptr is None)
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    left = tl.minimum(M - first, BLOCK_M).to(tl.int32)
    rows = offsets_of_rows(BLOCK_M, VECTOR)
    x_ptr += first * N
    out_ptr += first
    if mean_ptr is not None:
        mean_ptr += first
    total = tl.full([], N, OP.accumulator)
    size = tl.full([], M, tl.int64)
    if left == BLOCK_M:
        shift, mean, squares = _moments(x_ptr, left, OP, N, BLOCK_M, VECTOR, EVICT, True)
        mask = rows < BLOCK_M
        store_moments(
            mean, squares, total, shift, out_ptr, mean_ptr, None, None, None, None, rows, mask, size, count, OP, 1
        )  # fmt: skip
    else:
        shift, mean, squares = _moments(x_ptr, left, OP, N, BLOCK_M, VECTOR, EVICT, False)
        mask = rows < left
        store_moments(
            mean, squares, total, shift, out_ptr, mean_ptr, None, None, None, None, rows, mask, size, count, OP, 1
        )  # fmt: skip
