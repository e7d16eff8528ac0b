# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""From elements in memory to accumulators, and from accumulators to results.

Shapes in the docstrings of this family: an input is contiguous, [M, N, K] in memory, and N is reduced. ``OP`` is a
:class:`.policy.Arithmetic`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...launch.workspace import is_last


@triton.jit
def prepare(x, OP: tl.constexpr):
    """Elements as accumulators."""
    x = x.to(OP.converted)
    if OP.prologue is not None:
        x = OP.prologue(x, OP)
    return x.to(OP.accumulator)


@triton.jit
def load(pointers, mask, OP: tl.constexpr, EVICT: tl.constexpr):
    """Elements as accumulators, the identity outside of ``mask``. EVICT: the policy of the L2 cache."""
    if pointers.dtype.scalar.element_ty == tl.int1 and OP.converted == tl.uint8:
        # As the bytes that they are: Triton compares each bool that it loads to 0, one more of three instructions.
        pointers = pointers.to(tl.pointer_type(tl.uint8))
    return prepare(tl.load(pointers, mask=mask, other=OP.identity, eviction_policy=EVICT), OP)


@triton.jit
def identity_of(x_ptr, OP: tl.constexpr):
    """The accumulator without an element."""
    return prepare(tl.full([], OP.identity, x_ptr.dtype.element_ty), OP)


@triton.jit
def is_best(x, best):
    """Whether ``x`` is what ``best`` was found among; of elements with a NaN, NaN is."""
    return (x == best) | (x != x)


@triton.jit
def _finished(result, count, OP: tl.constexpr):
    if OP.epilogue is not None:
        result = OP.epilogue(result, count, OP)
    return result


# When there are too few results to fill the device, several programs share one: each publishes its partial result, and
# the last to arrive combines them in the order of the programs' numbers, not of their arrival. So one launch is enough
# and the bits are the same every time.


@triton.jit
def _load_partials(partial_ptr, offsets, mask, size, other, BLOCK_SPLITS: tl.constexpr):
    """What the programs of a block have published, [BLOCK_M, BLOCK_SPLITS, BLOCK_K]."""
    split = tl.arange(0, BLOCK_SPLITS)[None, :, None]
    mask = mask[:, None, :] & (split < tl.num_programs(1))
    # Not from L1, which may hold what was there before.
    return tl.load(partial_ptr + offsets[:, None, :] + split * size, mask=mask, other=other, cache_modifier=".cg")


@triton.jit
def store_values(
    values, out_ptr, partial_ptr, arrived_ptr, offsets, mask, size, count, identity,
    OP: tl.constexpr, BLOCK_SPLITS: tl.constexpr,
):  # fmt: skip
    """Store the results of a program, [BLOCK_M, BLOCK_K], or of all that share them if it is the last.

    Args:
        out_ptr: [M, K].
        partial_ptr: [splits, M, K] of accumulators, None without splits.
        arrived_ptr: [blocks] of zeros, which are left zero; None without splits.
        offsets, mask: [BLOCK_M, BLOCK_K], in ``out_ptr``.
        size: M * K.
        count: number of elements of which each final result is made.
    """
    if BLOCK_SPLITS == 1:
        tl.store(out_ptr + offsets, _finished(values, count, OP), mask=mask)
    else:
        tl.store(partial_ptr + offsets + tl.program_id(1) * size, values, mask=mask)
        if is_last(arrived_ptr + tl.program_id(0), tl.num_programs(1), "acq_rel"):
            partials = _load_partials(partial_ptr, offsets, mask, size, identity, BLOCK_SPLITS)
            tl.store(out_ptr + offsets, _finished(tl.reduce(partials, 1, OP.combine), count, OP), mask=mask)


@triton.jit
def store_located(
    values, positions, out_ptr, position_ptr, partial_ptr, partial_position_ptr, arrived_ptr, offsets, mask, size, N,
    identity, OP: tl.constexpr, BLOCK_SPLITS: tl.constexpr,
):  # fmt: skip
    """As :func:`store_values`, with the position of each value along N.

    Args:
        out_ptr: [M, K], None if only positions are wanted.
        position_ptr: [M, K] of int64.
        partial_position_ptr: [splits, M, K] of the dtype of N, None without splits.
    """
    tl.static_assert(OP.epilogue is None)
    if BLOCK_SPLITS == 1:
        if out_ptr is not None:
            tl.store(out_ptr + offsets, values, mask=mask)
        tl.store(position_ptr + offsets, positions, mask=mask)
    else:
        tl.store(partial_ptr + offsets + tl.program_id(1) * size, values, mask=mask)
        tl.store(partial_position_ptr + offsets + tl.program_id(1) * size, positions, mask=mask)
        if is_last(arrived_ptr + tl.program_id(0), tl.num_programs(1), "acq_rel"):
            partials = _load_partials(partial_ptr, offsets, mask, size, identity, BLOCK_SPLITS)
            candidates = _load_partials(partial_position_ptr, offsets, mask, size, N, BLOCK_SPLITS)
            values = tl.reduce(partials, 1, OP.combine)
            positions = tl.min(tl.where(is_best(partials, values[:, None, :]), candidates, N), 1)
            if out_ptr is not None:
                tl.store(out_ptr + offsets, values, mask=mask)
            tl.store(position_ptr + offsets, positions, mask=mask)
