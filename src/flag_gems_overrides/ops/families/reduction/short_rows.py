# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, no-untyped-def, var-annotated"
"""Rows of a contiguous [M, N] with few N, so many to a thread that they are whole vectors, each to one result.

A lane for each element would be a load for each, and lanes beyond a row's end without one: any of 1587400 x 3 int16
takes 10.6 us so, 7.9 as here by four warps, 8.3 by two, 8.8 torch.compile (H100). Of fewer rows two are a little
better: amax 143921 x 5 bfloat16 3.62 and 3.49.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.vectors import apart, together
from .elements import identity_of, load, store_values


@triton.jit
def _reduced(
    x_ptr,
    left,
    OP: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    VECTOR: tl.constexpr,
    EVICT: tl.constexpr,
    ALL: tl.constexpr,
):
    """The results of ROWS rows, [ROWS // VECTOR, VECTOR], of which there are ``left``, or ALL."""
    offsets = tl.arange(0, ROWS // VECTOR)[:, None] * (N * VECTOR) + tl.arange(0, VECTOR)[None, :]
    elements = ()
    for i in tl.static_range(N):
        mask = tl.full(offsets.shape, True, tl.int1) if ALL else offsets + i * VECTOR < left * N
        elements = elements + apart(load(x_ptr + offsets + i * VECTOR, mask, OP, EVICT), VECTOR)
    results = ()
    for row in tl.static_range(VECTOR):
        result = elements[row * N]
        for i in tl.static_range(1, N):
            result = OP.combine(result, elements[row * N + i])
        results = results + (result,)
    return together(results, 0, VECTOR)


@entry()
@triton.jit
def reduce_short_rows_kernel(
    x_ptr,
    out_ptr,
    partial_ptr,
    arrived_ptr,
    M,
    count,
    OP: tl.constexpr,
    N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    VECTOR: tl.constexpr,
    EVICT: tl.constexpr,
):
    """Reduce N.

    Grid: blocks of BLOCK_M rows.

    Args:
        x_ptr: [M, N].
        out_ptr: [M].
        partial_ptr, arrived_ptr: None.
        count: number of elements of which each final result is made.
        VECTOR: rows of a thread, and elements that a load takes together.
        EVICT: the policy of the L2 cache.
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    left = tl.minimum(M - first, BLOCK_M).to(tl.int32)
    rows = tl.arange(0, BLOCK_M // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    x_ptr += first * N
    out_ptr += first
    size = tl.full([], M, tl.int64)
    identity = identity_of(x_ptr, OP)
    # Vectors where one mask is for all of them.
    if left == BLOCK_M:
        values = _reduced(x_ptr, left, OP, N, BLOCK_M, VECTOR, EVICT, True)
        store_values(values, out_ptr, None, None, rows, rows < BLOCK_M, size, count, identity, OP, 1)
    else:
        values = _reduced(x_ptr, left, OP, N, BLOCK_M, VECTOR, EVICT, False)
        store_values(values, out_ptr, None, None, rows, rows < left, size, count, identity, OP, 1)
