# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Kernels of the cross entropy of long rows; see cross_entropy.py.

A row is read as whole vectors of VEC elements and, where C is no multiple of VEC (UNALIGNED), its edges. Each vector of
a tile keeps a maximum and sums of its own, so that nothing is exchanged between threads before the end of the row.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ..softmax.tile import exp, row_edges, row_interior
from .cross_entropy import finite, load_row_targets, reduce_losses, row_gradient, rows_to_do, wanted


@triton.jit
def row_statistics(
    x_ptr, target_ptr, weight_ptr, row, C, target, target_weight,
    PROBABILITIES: tl.constexpr, SMOOTHING: tl.constexpr, ACC: tl.constexpr,
    UNALIGNED: tl.constexpr, VECTORS: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Of a row: maximum, sum of exp(x - maximum), sum(q), and sum(q * (x - maximum)).

    The last two only of PROBABILITIES or SMOOTHING; else they are zeros.
    """
    start, length = row_interior(row, C, VEC, UNALIGNED)
    first_class = (start - row * C).to(tl.int32)
    maxima = tl.full([VECTORS, 1], float("-inf"), ACC)
    sums = tl.zeros([VECTORS, 1], ACC)
    q_sums = tl.zeros([VECTORS, 1], ACC)
    dots = tl.zeros([VECTORS, 1], ACC)
    lanes = tl.arange(0, VECTORS)[:, None] * VEC + tl.arange(0, VEC)[None, :]
    vectors = (length // VEC).to(tl.int32)
    for first in tl.range(0, vectors, VECTORS, num_stages=STAGES):
        mask = first + tl.arange(0, VECTORS)[:, None] < vectors
        offset = start + first * VEC + lanes
        # The gradient reads it once more.
        x = tl.load(x_ptr + offset, mask=mask, other=float("-inf"), eviction_policy="evict_last").to(ACC)
        new_maxima = tl.maximum(maxima, tl.max(x, 1, keep_dims=True))
        base = finite(new_maxima)
        sums = sums * exp(maxima - base) + tl.sum(exp(x - base), 1, keep_dims=True)
        if PROBABILITIES or SMOOTHING > 0:
            q = wanted(
                target_ptr + offset, weight_ptr, first_class + first * VEC + lanes, mask, target, target_weight, C,
                PROBABILITIES, SMOOTHING, ACC,
            )  # fmt: skip
            # Relative to the maximum, as exponentials are: of logits of -200 the digits after it would be lost.
            dots += q_sums * (finite(maxima) - base)
            dots += tl.sum(tl.where(mask, q * (x - base), 0.0), 1, keep_dims=True)
            q_sums += tl.sum(q, 1, keep_dims=True)
        maxima = new_maxima
    row_max = tl.max(maxima)
    if UNALIGNED:
        offset, mask = row_edges(row, C, VEC)
        edge = tl.load(x_ptr + offset, mask=mask, other=float("-inf")).to(ACC)
        row_max = tl.maximum(row_max, tl.max(edge))
        base = finite(row_max)
        row_sum = tl.sum(sums * exp(maxima - base)) + tl.sum(exp(edge - base))
    else:
        base = finite(row_max)
        row_sum = tl.sum(sums * exp(maxima - base))
    q_sum = tl.sum(q_sums)
    dot = tl.sum(dots + q_sums * (finite(maxima) - base))
    if UNALIGNED and (PROBABILITIES or SMOOTHING > 0):
        c = (offset - row * C).to(tl.int32)
        q = wanted(target_ptr + offset, weight_ptr, c, mask, target, target_weight, C, PROBABILITIES, SMOOTHING, ACC)
        dot += tl.sum(tl.where(mask, q * (edge - base), 0.0))
        q_sum += tl.sum(q)
    return row_max, row_sum, q_sum, dot


@triton.jit
def write_gradient(
    x_ptr, target_ptr, weight_ptr, dx_ptr, row, member, members, C, target, target_weight, counts, grad,
    row_max, log_sum, q_sum, PROBABILITIES: tl.constexpr, SMOOTHING: tl.constexpr, ACC: tl.constexpr,
    UNALIGNED: tl.constexpr, VECTORS: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient of every ``members``-th tile. Backwards: what was read last is the surest to be in cache."""
    start, length = row_interior(row, C, VEC, UNALIGNED)
    first_class = (start - row * C).to(tl.int32)
    lanes = tl.arange(0, VECTORS)[:, None] * VEC + tl.arange(0, VEC)[None, :]
    vectors = (length // VEC).to(tl.int32)
    tiles = tl.cdiv(vectors, VECTORS)
    for i in tl.range(member, tiles, members, num_stages=STAGES):
        first = (tiles - 1 - i) * VECTORS
        mask = first + tl.arange(0, VECTORS)[:, None] < vectors
        offset = start + first * VEC + lanes
        x = tl.load(x_ptr + offset, mask=mask, other=0, eviction_policy="evict_first").to(ACC)
        q = wanted(
            target_ptr + offset, weight_ptr, first_class + first * VEC + lanes, mask, target, target_weight, C,
            PROBABILITIES, SMOOTHING, ACC,
        )  # fmt: skip
        dx = tl.where(counts, grad * (q_sum * exp(x - row_max - log_sum) - q), 0.0)
        tl.store(dx_ptr + offset, dx, mask=mask, eviction_policy="evict_first")
    if UNALIGNED:
        offset, mask = row_edges(row, C, VEC)
        mask &= member == 0
        x = tl.load(x_ptr + offset, mask=mask, other=0).to(ACC)
        c = (offset - row * C).to(tl.int32)
        q = wanted(target_ptr + offset, weight_ptr, c, mask, target, target_weight, C, PROBABILITIES, SMOOTHING, ACC)
        dx = tl.where(counts, grad * (q_sum * exp(x - row_max - log_sum) - q), 0.0)
        tl.store(dx_ptr + offset, dx, mask=mask)


@entry()
@triton.jit
def cross_entropy_looped(
    x_ptr,
    target_ptr,
    weight_ptr,
    loss_ptr,
    total_ptr,
    row_max_ptr,
    log_sum_ptr,
    q_sum_ptr,
    partial_ptr,
    arrived_ptr,
    dx_ptr,
    R,
    C,
    ignore_index,
    REDUCED: tl.constexpr,
    MEAN: tl.constexpr,
    PROBABILITIES: tl.constexpr,
    SMOOTHING: tl.constexpr,
    ACC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    VECTORS: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
    BLOCK_PROGRAMS: tl.constexpr,
):
    """The loss of each row, or their sum or mean, and what the gradient needs.

    Args:
        x_ptr: [R, C].
        target_ptr: [R] of classes, or [R, C] of PROBABILITIES.
        weight_ptr: [C], None for ones.
        loss_ptr: [R]; [] if REDUCED.
        total_ptr: [], what a mean of classes divides by; read if there is a dx_ptr, else written; may be None.
        row_max_ptr, log_sum_ptr, q_sum_ptr: [R] of ACC; None if no gradient is wanted.
        partial_ptr: [2, programs] of ACC; None unless REDUCED.
        arrived_ptr: [1]; None unless REDUCED.
        dx_ptr: [R, C], None if the gradient is not to be written.
    """
    losses = tl.zeros([1], ACC)
    totals = tl.zeros([1], ACC)
    for index in range(tl.program_id(0), R, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        target, counts, target_weight = load_row_targets(
            target_ptr, weight_ptr, row, row < R, C, ignore_index, PROBABILITIES, ACC
        )
        row_max, row_sum, q_sum, dot = row_statistics(
            x_ptr, target_ptr, weight_ptr, row, C, target, target_weight,
            PROBABILITIES, SMOOTHING, ACC, UNALIGNED, VECTORS, VEC, STAGES,
        )  # fmt: skip
        log_sum = tl.log(row_sum)
        if not (PROBABILITIES or SMOOTHING > 0):
            q_sum = target_weight
            x = tl.load(x_ptr + row * C + target, mask=counts, other=0).to(ACC)
            dot = target_weight * (x - finite(row_max))
        loss = tl.where(counts, q_sum * log_sum - dot, 0.0)
        if row_max_ptr is not None:
            tl.store(row_max_ptr + row, row_max)
            tl.store(log_sum_ptr + row, log_sum)
            tl.store(q_sum_ptr + row, q_sum)
        if dx_ptr is not None:
            grad = row_gradient(None, row, 0, total_ptr, R, counts, MEAN, ACC)
            write_gradient(
                x_ptr, target_ptr, weight_ptr, dx_ptr, row, 0, 1, C, target, target_weight, counts, grad,
                row_max, log_sum, q_sum, PROBABILITIES, SMOOTHING, ACC, UNALIGNED, VECTORS, VEC, STAGES,
            )  # fmt: skip
        if REDUCED:
            losses += loss
            totals += target_weight
        else:
            tl.store(loss_ptr + row, loss)
    if REDUCED:
        reduce_losses(
            loss_ptr, total_ptr, partial_ptr, arrived_ptr, tl.sum(losses), tl.sum(totals), R,
            MEAN, dx_ptr is not None, BLOCK_PROGRAMS,
        )  # fmt: skip


@entry()
@triton.jit
def cross_entropy_looped_gradient(
    grad_ptr,
    x_ptr,
    target_ptr,
    weight_ptr,
    total_ptr,
    row_max_ptr,
    log_sum_ptr,
    q_sum_ptr,
    dx_ptr,
    R,
    C,
    members,
    grad_stride,
    ignore_index,
    WRITTEN: tl.constexpr,
    MEAN: tl.constexpr,
    PROBABILITIES: tl.constexpr,
    SMOOTHING: tl.constexpr,
    ACC: tl.constexpr,
    UNALIGNED: tl.constexpr,
    VECTORS: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradient by x.

    Args:
        grad_ptr: [R], or one element with grad_stride 0.
        x_ptr, dx_ptr: [R, C].
        target_ptr: [R] of classes, or [R, C] of PROBABILITIES.
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN of classes.
        row_max_ptr, log_sum_ptr, q_sum_ptr: [R] of ACC.
        members: programs that share a row.
        WRITTEN: dx is right already if the one gradient is 1.
    """
    shares = tl.cast(rows_to_do(grad_ptr, R, WRITTEN), tl.int64) * members
    for share in range(tl.program_id(0).to(tl.int64), shares, tl.num_programs(0)):
        row = share // members
        member = (share % members).to(tl.int32)
        target, counts, target_weight = load_row_targets(
            target_ptr, weight_ptr, row, row < R, C, ignore_index, PROBABILITIES, ACC
        )
        grad = row_gradient(grad_ptr, row, grad_stride, total_ptr, R, counts, MEAN, ACC)
        row_max, log_sum, q_sum = tl.load(row_max_ptr + row), tl.load(log_sum_ptr + row), tl.load(q_sum_ptr + row)
        write_gradient(
            x_ptr, target_ptr, weight_ptr, dx_ptr, row, member, members, C, target, target_weight, counts, grad,
            row_max, log_sum, q_sum, PROBABILITIES, SMOOTHING, ACC, UNALIGNED, VECTORS, VEC, STAGES,
        )  # fmt: skip
