# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="assignment, no-untyped-def, var-annotated, misc"
"""A contiguous [M, N, K] with few N and K of 2, 3, 4, 5 or 8, several [N, K] to a program.

Lanes are side by side in an [N, K] as it lies, some of them idle if K is no power of two. As columns, whose lanes are
results, each load of a warp reaches into as many [N, K] as it has vectors.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from .elements import identity_of, load, store_values


@entry()
@triton.jit
def reduce_short_classes_kernel(
    x_ptr,
    out_ptr,
    partial_ptr,
    arrived_ptr,
    M,
    N,
    count,
    OP: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    LANES: tl.constexpr,
    STEP: tl.constexpr,
    DEPTH: tl.constexpr,
    REST: tl.constexpr,
    VECTOR: tl.constexpr,
    EVICT: tl.constexpr,
):
    """Reduce N.

    Grid: blocks of BLOCK_M of M.

    Args:
        x_ptr: [M, N, K].
        out_ptr: [M, K].
        partial_ptr, arrived_ptr: None.
        count: number of elements of which each final result is made.
        LANES: of an [N, K], of which STEP, a multiple of K, each have DEPTH elements, with REST some one more.
        VECTOR: divides N * K and STEP.
        EVICT: the policy of the L2 cache.
    """
    tl.static_assert(STEP % K == 0 and STEP % VECTOR == 0)
    BLOCK_K: tl.constexpr = triton.next_power_of_2(K)
    block = tl.program_id(0).to(tl.int64) * BLOCK_M
    m = tl.arange(0, BLOCK_M)[:, None]
    mask = m < M - block
    lane = tl.arange(0, LANES)[None, :]
    length = N * K // VECTOR * VECTOR
    pointers = x_ptr + block * length + (m * length + lane)
    elements = ()
    used = mask if STEP == LANES else mask & (lane < STEP)
    for i in tl.static_range(DEPTH):
        elements = elements + (load(pointers + i * STEP, used, OP, EVICT),)
    if REST:
        elements = elements + (load(pointers + DEPTH * STEP, used & (DEPTH * STEP + lane < length), OP, EVICT),)
    acc = elements[0]
    for i in tl.static_range(1, DEPTH + REST):
        acc = OP.combine(acc, elements[i])
    k = tl.arange(0, BLOCK_K)[None, :]
    identity = identity_of(x_ptr, OP)
    if BLOCK_K == K:
        results = tl.reduce(tl.reshape(acc, [BLOCK_M, LANES // K, K]), 1, OP.combine)
    else:  # one class after the other
        results = tl.full([BLOCK_M, BLOCK_K], identity, OP.accumulator)
        for c in tl.static_range(K):
            of_class = tl.reduce(tl.where(lane % K == c, acc, identity), 1, OP.combine)
            results = tl.where(k == c, of_class[:, None], results)
    store_values(
        results,
        out_ptr + block * K,
        None,
        None,
        offsets=m * K + k,
        mask=mask & (k < K),
        size=tl.full([], M, tl.int64) * K,
        count=count,
        identity=identity,
        OP=OP,
        BLOCK_SPLITS=1,
    )
