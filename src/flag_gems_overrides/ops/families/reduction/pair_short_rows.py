# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, no-untyped-def, var-annotated"
"""Pairs of rows of a contiguous [M, N] with few N, read as :mod:`.short_rows` says."""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.vectors import together
from .pairs import store_pairs
from .short_rows import load_rows, offsets_of_rows


@triton.jit
def _merged(elements, OP: tl.constexpr, N: tl.constexpr, VECTOR: tl.constexpr):
    firsts = ()
    seconds = ()
    for row in tl.static_range(VECTOR):
        exists = tl.full(elements[0].shape, True, tl.int1)
        first = tl.full(elements[0].shape, OP.first, OP.accumulator)
        second = tl.full(elements[0].shape, OP.second, OP.accumulator)
        for i in tl.static_range(N):
            a, b = OP.lift(elements[row * N + i], exists, OP)
            first, second = OP.merge(first, second, a, b, OP)
        firsts = firsts + (first,)
        seconds = seconds + (second,)
    return together(firsts, 0, VECTOR), together(seconds, 0, VECTOR)


@entry()
@triton.jit
def reduce_pairs_of_short_rows_kernel(
    x_ptr,
    second_ptr,
    out_ptr,
    second_out_ptr,
    partial_ptr,
    partial_second_ptr,
    arrived_ptr,
    M,
    OP: tl.constexpr,
    N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    VECTOR: tl.constexpr,
    EVICT: tl.constexpr,
):
    """Reduce N of elements. Grid and parameters as in ``reduce_short_rows_kernel`` and
    ``reduce_pairs_of_rows_kernel``.
    """
    tl.static_assert(second_ptr is None)
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    left = tl.minimum(M - first, BLOCK_M).to(tl.int32)
    rows = offsets_of_rows(BLOCK_M, VECTOR)
    x_ptr += first * N
    out_ptr += first
    if second_out_ptr is not None:
        second_out_ptr += first
    size = tl.full([], M, tl.int64)
    if left == BLOCK_M:
        a, b = _merged(load_rows(x_ptr, left, OP, N, BLOCK_M, VECTOR, EVICT, True), OP, N, VECTOR)
        store_pairs(a, b, out_ptr, second_out_ptr, None, None, None, rows, rows < BLOCK_M, size, OP, 1)
    else:
        a, b = _merged(load_rows(x_ptr, left, OP, N, BLOCK_M, VECTOR, EVICT, False), OP, N, VECTOR)
        store_pairs(a, b, out_ptr, second_out_ptr, None, None, None, rows, rows < left, size, OP, 1)
