# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""A contiguous [M, N, K] in tiles of [BLOCK_M, BLOCK_N, BLOCK_K], so that reading along K is contiguous."""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from .elements import identity_of, is_best, load, store_located, store_values


@triton.jit
def _block(K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """The results of a program, as indices [BLOCK_M, 1] of M and [1, BLOCK_K] of K."""
    block = tl.program_id(0)
    k_blocks = tl.cdiv(K, BLOCK_K)
    m = (block // k_blocks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    k = (block % k_blocks) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    return m, k


@entry()
@triton.jit
def reduce_columns_kernel(
    x_ptr,
    out_ptr,
    partial_ptr,
    arrived_ptr,
    M,
    N,
    K,
    count,
    OP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    K_DIVISOR: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """Reduce N.

    Grid: blocks of BLOCK_M x BLOCK_K results, programs that share them.

    Args:
        x_ptr: [M, N, K].
        out_ptr: [M, K].
        partial_ptr: [splits, M, K] of accumulators, None without splits.
        arrived_ptr: [blocks] of zeros, None without splits.
        count: number of elements of which each final result is made.
        K_DIVISOR: a power of two that divides K, for the compiler to know.

    The rest is as in ``reduce_rows_kernel``.
    """
    split = tl.program_id(1)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    K = tl.cast(K, N.dtype) // K_DIVISOR * K_DIVISOR
    m, k = _block(K, BLOCK_M, BLOCK_K)
    column_ptr = x_ptr + (m * N * K + k)[:, None, :]
    mask = (m < M) & (k < K)
    first = split * BLOCK_N + tl.arange(0, BLOCK_N)[None, :, None]
    identity = identity_of(x_ptr, OP)
    if ONE_TILE_PER_CTA:
        n = first.to(N.dtype)
        acc = load(column_ptr + n * K, mask[:, None, :] & (n < N), OP, EVICT)
    else:
        acc = tl.full([BLOCK_M, BLOCK_N, BLOCK_K], identity, OP.accumulator)
        for tile in tl.range(0, N, tl.num_programs(1) * BLOCK_N, num_stages=STAGES):
            n = tile + first
            x = load(column_ptr + n * K, mask[:, None, :] & (n < N), OP, EVICT)
            acc = OP.combine(acc, x)
    store_values(
        tl.reduce(acc, 1, OP.combine),
        out_ptr,
        partial_ptr,
        arrived_ptr,
        offsets=m * K + k,
        mask=mask,
        size=tl.full([], M, tl.int64) * K,
        count=count,
        identity=identity,
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )


@entry()
@triton.jit
def locate_columns_kernel(
    x_ptr,
    out_ptr,
    position_ptr,
    partial_ptr,
    partial_position_ptr,
    arrived_ptr,
    M,
    N,
    K,
    OP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    K_DIVISOR: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """As :func:`reduce_columns_kernel`, and where along N the first element is that equals the result.

    Args:
        out_ptr: [M, K], None if only positions are wanted.
        position_ptr: [M, K] of int64.
        partial_position_ptr: [splits, M, K] of the type of offsets, None without splits.
    """
    split = tl.program_id(1)
    N = tl.full([], N, tl.int64 if INT64_OFFSETS else tl.int32)
    K = tl.cast(K, N.dtype) // K_DIVISOR * K_DIVISOR
    m, k = _block(K, BLOCK_M, BLOCK_K)
    column_ptr = x_ptr + (m * N * K + k)[:, None, :]
    mask = (m < M) & (k < K)
    first = split * BLOCK_N + tl.arange(0, BLOCK_N)[None, :, None]
    identity = identity_of(x_ptr, OP)
    best_tile = tl.full([BLOCK_M, BLOCK_N, BLOCK_K], 0, N.dtype)
    if ONE_TILE_PER_CTA:
        n = first.to(N.dtype)
        best = load(column_ptr + n * K, mask[:, None, :] & (n < N), OP, EVICT)
    else:
        best = tl.full([BLOCK_M, BLOCK_N, BLOCK_K], identity, OP.accumulator)
        for tile in tl.range(0, N, tl.num_programs(1) * BLOCK_N, num_stages=STAGES):
            n = tile + first
            x = load(column_ptr + n * K, mask[:, None, :] & (n < N), OP, EVICT)
            better = OP.replaces(x, best)
            best = tl.where(better, x, best)
            best_tile = tl.where(better, tile, best_tile)
    values = tl.reduce(best, 1, OP.combine)
    store_located(
        values,
        tl.min(tl.where(is_best(best, values[:, None, :]), best_tile + first, N), 1),
        out_ptr,
        position_ptr,
        partial_ptr,
        partial_position_ptr,
        arrived_ptr,
        offsets=m * K + k,
        mask=mask,
        size=tl.full([], M, tl.int64) * K,
        N=N,
        identity=identity,
        OP=OP,
        BLOCK_SPLITS=BLOCK_SPLITS,
    )
