# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""One reduction for prod, max, min and their relatives, over a whole tensor or some of its dimensions.

A contiguous tensor is [M, N, K] in memory, N the reduced elements. A program holds a register block of accumulators
and combines into it, elementwise, every tile that it meets on its grid-stride walk along N; only then is the block
folded, as a binary tree. When there are too few outputs to fill the device, several programs share one of them: each
publishes its partial result, and the last to arrive combines the partials, in the order of their numbers and not of
their arrival, so that one launch is enough and the bits are the same every time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import is_last
from .combine import fold, is_best
from .tiles import locate_flat, locate_tiled, reduce_flat, reduce_tiled


@triton.jit
def _partials(partial_ptr, outputs, wanted, size, other, BLOCK_SPLITS: tl.constexpr):
    """What the programs of a block have published, [M, splits, K]."""
    s = tl.arange(0, BLOCK_SPLITS)[None, :, None]
    mask = wanted[:, None, :] & (s < tl.num_programs(1))
    # Not from L1, which may hold what was there before.
    return tl.load(partial_ptr + outputs[:, None, :] + s * size, mask=mask, other=other, cache_modifier=".cg")


@entry()
@triton.jit
def reduce_kernel(
    x_ptr,  # [M, N, K]
    out_ptr,  # [M, K]
    partial_ptr,  # [splits, M, K] in ACC, None without splits
    arrived_ptr,  # a zero for each block, None without splits
    M,
    N,
    K,
    FLAT_K: tl.constexpr,  # K for the flat walk, 0 for the tiled one
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STEP: tl.constexpr,  # how much of a tile is used; less than all only if flat
    VECTOR: tl.constexpr,  # elements that a load takes together; divides K if tiled
    EDGES: tl.constexpr,  # lanes for what is outside of whole vectors in a row, 0 if there is nothing
    BLOCK_SPLITS: tl.constexpr,  # number of splits, rounded up to a power of two
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,  # tiles in flight
    EVICT: tl.constexpr,  # the policy of the L2 cache for tiles
    OFFSET: tl.constexpr,  # tl.int64 where 32 bits may not do
    COMBINE: tl.constexpr,
    IDENTITY: tl.constexpr,
    CAST: tl.constexpr,  # what the input is converted to first
    ACC: tl.constexpr,  # what is computed with
):
    block = tl.program_id(0)
    split = tl.program_id(1)
    identity = tl.full([], IDENTITY, x_ptr.dtype.element_ty).to(CAST).to(ACC)
    N = tl.full([], N, OFFSET)
    if FLAT_K:
        m = block.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        k = tl.arange(0, BLOCK_K)[None, :]
        result = reduce_flat(
            x_ptr, m, M, N * K, k, split, identity, FLAT_K, BLOCK_M, BLOCK_N, STEP, VECTOR, EDGES,
            ONE_TILE_PER_CTA, STAGES, EVICT, COMBINE, IDENTITY, CAST, ACC,
        )  # fmt: skip
    else:
        K = tl.cast(K, OFFSET) // VECTOR * VECTOR
        k_blocks = tl.cdiv(K, BLOCK_K)
        m = (block // k_blocks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        k = (block % k_blocks) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
        result = reduce_tiled(
            x_ptr, m, M, N, k, K, split, identity, BLOCK_M, BLOCK_N, BLOCK_K, ONE_TILE_PER_CTA, STAGES, EVICT,
            COMBINE, IDENTITY, CAST, ACC,
        )  # fmt: skip

    outputs = m * K + k
    wanted = (m < M) & (k < K)
    if BLOCK_SPLITS == 1:
        tl.store(out_ptr + outputs, result, mask=wanted)
    else:
        size = tl.full([], M, tl.int64) * K
        tl.store(partial_ptr + outputs + split * size, result, mask=wanted)
        if is_last(arrived_ptr + block, tl.num_programs(1), "acq_rel"):
            partials = _partials(partial_ptr, outputs, wanted, size, identity, BLOCK_SPLITS)
            tl.store(out_ptr + outputs, fold(partials, 1, COMBINE), mask=wanted)


@entry()
@triton.jit
def reduce_with_index_kernel(
    x_ptr,  # [M, N, K]
    out_ptr,  # [M, K], None if only indices are wanted
    index_ptr,  # [M, K] of int64
    partial_ptr,  # [splits, M, K] in ACC, None without splits
    partial_index_ptr,  # [splits, M, K] of OFFSET, None without splits
    arrived_ptr,  # a zero for each block, None without splits
    M,
    N,
    K,
    FLAT_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STEP: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    GROUP: tl.constexpr,  # neighbours that are combined before they are compared
    BLOCK_SPLITS: tl.constexpr,
    ONE_TILE_PER_CTA: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
    OFFSET: tl.constexpr,
    COMBINE: tl.constexpr,
    IDENTITY: tl.constexpr,
    ACC: tl.constexpr,
):
    """As :func:`reduce_kernel`, and where along N the first element that equals the result is."""
    block = tl.program_id(0)
    split = tl.program_id(1)
    identity = tl.full([], IDENTITY, x_ptr.dtype.element_ty).to(ACC)
    N = tl.full([], N, OFFSET)
    if FLAT_K:
        m = block.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        k = tl.arange(0, BLOCK_K)[None, :]
        value, index = locate_flat(
            x_ptr, m, M, N * K, k, split, identity, FLAT_K, BLOCK_M, BLOCK_N, STEP, VECTOR, EDGES, GROUP,
            ONE_TILE_PER_CTA, STAGES, EVICT, COMBINE, IDENTITY, ACC,
        )  # fmt: skip
    else:
        K = tl.cast(K, OFFSET) // VECTOR * VECTOR
        k_blocks = tl.cdiv(K, BLOCK_K)
        m = (block // k_blocks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        k = (block % k_blocks) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
        value, index = locate_tiled(
            x_ptr, m, M, N, k, K, split, identity, BLOCK_M, BLOCK_N, BLOCK_K, ONE_TILE_PER_CTA, STAGES, EVICT,
            COMBINE, IDENTITY, ACC,
        )  # fmt: skip

    outputs = m * K + k
    wanted = (m < M) & (k < K)
    if BLOCK_SPLITS == 1:
        if out_ptr is not None:
            tl.store(out_ptr + outputs, value, mask=wanted)
        tl.store(index_ptr + outputs, index, mask=wanted)
    else:
        size = tl.full([], M, tl.int64) * K
        tl.store(partial_ptr + outputs + split * size, value, mask=wanted)
        tl.store(partial_index_ptr + outputs + split * size, index, mask=wanted)
        if is_last(arrived_ptr + block, tl.num_programs(1), "acq_rel"):
            partials = _partials(partial_ptr, outputs, wanted, size, identity, BLOCK_SPLITS)
            indices = _partials(partial_index_ptr, outputs, wanted, size, N, BLOCK_SPLITS)
            value = fold(partials, 1, COMBINE)
            index = tl.min(tl.where(is_best(partials, value[:, None, :]), indices, N), 1)
            if out_ptr is not None:
                tl.store(out_ptr + outputs, value, mask=wanted)
            tl.store(index_ptr + outputs, index, mask=wanted)
