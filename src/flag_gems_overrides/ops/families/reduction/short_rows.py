# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, no-untyped-def, var-annotated"
"""Rows of a contiguous [M, N] with few N. A thread has as many of them as are whole vectors.

With a lane for each element, each would be a load, and lanes beyond a row's end would have none.
any 1587400 x 3 int16: 7.9 us by four warps, with a lane for each element 10.6 (H100). Of fewer rows two warps are a
little better: amax 143921 x 5 bfloat16: 3.49 us, by four 3.62 (H100).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.vectors import apart, together
from .elements import identity_of, load, store_located, store_values


@triton.jit
def load_rows(
    x_ptr,
    left,
    OP: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    VECTOR: tl.constexpr,
    EVICT: tl.constexpr,
    ALL: tl.constexpr,
):
    """The elements of VECTOR rows to a lane, one row after the other, each [ROWS // VECTOR, 1].

    ``left`` of the ROWS exist, or ALL: vectors are loaded where one mask is for all of their elements.
    """
    offsets = tl.arange(0, ROWS // VECTOR)[:, None] * (N * VECTOR) + tl.arange(0, VECTOR)[None, :]
    elements = ()
    for i in tl.static_range(N):
        mask = tl.full(offsets.shape, True, tl.int1) if ALL else offsets + i * VECTOR < left * N
        elements = elements + apart(load(x_ptr + offsets + i * VECTOR, mask, OP, EVICT), VECTOR)
    return elements


@triton.jit
def offsets_of_rows(ROWS: tl.constexpr, VECTOR: tl.constexpr):
    return tl.arange(0, ROWS // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]


@triton.jit
def _reduced(elements, OP: tl.constexpr, N: tl.constexpr, VECTOR: tl.constexpr):
    results = ()
    for row in tl.static_range(VECTOR):
        result = elements[row * N]
        for i in tl.static_range(1, N):
            result = OP.combine(result, elements[row * N + i])
        results = results + (result,)
    return together(results, 0, VECTOR)


@triton.jit
def _located(elements, OP: tl.constexpr, N: tl.constexpr, VECTOR: tl.constexpr):
    """(Results, positions.)"""
    results = ()
    positions = ()
    for row in tl.static_range(VECTOR):
        best = elements[row * N]
        position = tl.zeros(best.shape, tl.int32)
        for i in tl.static_range(1, N):
            better = OP.replaces(elements[row * N + i], best)
            best = tl.where(better, elements[row * N + i], best)
            position = tl.where(better, i, position)
        results = results + (best,)
        positions = positions + (position,)
    return together(results, 0, VECTOR), together(positions, 0, VECTOR)


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
    rows = offsets_of_rows(BLOCK_M, VECTOR)
    x_ptr += first * N
    out_ptr += first
    size = tl.full([], M, tl.int64)
    identity = identity_of(x_ptr, OP)
    if left == BLOCK_M:
        values = _reduced(load_rows(x_ptr, left, OP, N, BLOCK_M, VECTOR, EVICT, True), OP, N, VECTOR)
        store_values(values, out_ptr, None, None, rows, rows < BLOCK_M, size, count, identity, OP, 1)
    else:
        values = _reduced(load_rows(x_ptr, left, OP, N, BLOCK_M, VECTOR, EVICT, False), OP, N, VECTOR)
        store_values(values, out_ptr, None, None, rows, rows < left, size, count, identity, OP, 1)


@entry()
@triton.jit
def locate_short_rows_kernel(
    x_ptr,
    out_ptr,
    position_ptr,
    partial_ptr,
    partial_position_ptr,
    arrived_ptr,
    M,
    OP: tl.constexpr,
    N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    VECTOR: tl.constexpr,
    EVICT: tl.constexpr,
):
    """As :func:`reduce_short_rows_kernel`, and where along N the first element is that equals the result.

    Args:
        out_ptr: [M], None if only positions are wanted.
        position_ptr: [M] of int64.
        partial_position_ptr: None.
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    left = tl.minimum(M - first, BLOCK_M).to(tl.int32)
    rows = offsets_of_rows(BLOCK_M, VECTOR)
    x_ptr += first * N
    position_ptr += first
    if out_ptr is not None:
        out_ptr += first
    size = tl.full([], M, tl.int64)
    identity = identity_of(x_ptr, OP)
    if left == BLOCK_M:
        elements = load_rows(x_ptr, left, OP, N, BLOCK_M, VECTOR, EVICT, True)
        values, positions = _located(elements, OP, N, VECTOR)
        mask = rows < BLOCK_M
        store_located(values, positions, out_ptr, position_ptr, None, None, None, rows, mask, size, N, identity, OP, 1)
    else:
        elements = load_rows(x_ptr, left, OP, N, BLOCK_M, VECTOR, EVICT, False)
        values, positions = _located(elements, OP, N, VECTOR)
        mask = rows < left
        store_located(values, positions, out_ptr, position_ptr, None, None, None, rows, mask, size, N, identity, OP, 1)
