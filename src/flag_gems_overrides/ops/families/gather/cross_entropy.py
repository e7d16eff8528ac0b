# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def"
"""Kernels of the cross entropy of logits [R, C] and its gradient. With q the distribution that a row should have,

    log_sum = log(sum(exp(x - row_max)))
    loss = sum(q * (row_max - x + log_sum))
    dx = grad * (sum(q) * exp(x - row_max - log_sum) - q)

A class target t means q = (1 - smoothing) * weight[t] at t, and smoothing / C * weight everywhere; probabilities p mean
q = ((1 - smoothing) * p + smoothing / C) * weight. Programs take every ``programs``-th tile of BLOCK_R rows.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import is_last
from .nll import load_targets, store_sums


@triton.jit
def row_tile(start, R, C, VEC: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """(rows, offset of the first tile, class of its first lane): a single row is read from a whole vector on."""
    row = start.to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)[:, None]
    if BLOCK_R == 1:
        first = start.to(tl.int64) * C
        aligned = first // VEC * VEC
        return row, aligned + tl.zeros([1, 1], tl.int64), (aligned - first).to(tl.int32)
    else:
        return row, row * C, 0


@triton.jit
def load_tile(ptr, c, mask, whole, ACC: tl.constexpr, OTHER: tl.constexpr, BLOCK_R: tl.constexpr):
    """A tile of logits, OTHER where there is none. Without a mask loads are of whole vectors."""
    if BLOCK_R == 1:
        if whole:  # noqa: SIM108
            x = tl.load(ptr)
        else:
            x = tl.load(ptr, mask=mask, other=OTHER)
    else:
        x = tl.load(ptr, mask=mask, other=OTHER)
    return x.to(ACC)


@triton.jit
def wanted(
    p_ptr, weight_ptr, c, mask, target, target_weight, C,
    PROBABILITIES: tl.constexpr, SMOOTHING: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """q of a tile. p_ptr: where the probabilities of the tile are."""
    rest = SMOOTHING / tl.cast(C, ACC)
    weight = 1.0
    if (PROBABILITIES or SMOOTHING > 0) and weight_ptr is not None:
        weight = tl.load(weight_ptr + c, mask=(c >= 0) & (c < C), other=0).to(ACC)
    if PROBABILITIES:
        p = tl.load(p_ptr, mask=mask, other=0).to(ACC)
        q = ((1 - SMOOTHING) * p + rest) * weight
    else:
        q = tl.where(c == target, (1 - SMOOTHING) * target_weight, 0.0)
        if SMOOTHING > 0:
            q += rest * weight
    return tl.where(mask, q, 0.0)


@entry()
@triton.jit
def cross_entropy_forward(
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
    R,
    C,
    ignore_index,
    REDUCED: tl.constexpr,
    MEAN: tl.constexpr,
    PROBABILITIES: tl.constexpr,
    SMOOTHING: tl.constexpr,
    ACC: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_PROGRAMS: tl.constexpr,
):
    """The loss of each row, or their sum or mean, and what the gradient needs.

    Args:
        x_ptr: [R, C].
        target_ptr: [R] of classes, or [R, C] of PROBABILITIES.
        weight_ptr: [C], None for ones.
        loss_ptr: [R]; [] if REDUCED.
        total_ptr: [], what a mean divides by; None unless REDUCED.
        row_max_ptr, log_sum_ptr, q_sum_ptr: [R] of ACC.
        partial_ptr: [2, programs] of ACC; None unless REDUCED.
        arrived_ptr: [1]; None unless REDUCED.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    losses = tl.zeros([BLOCK_R, 1], ACC)
    totals = tl.zeros([BLOCK_R, 1], ACC)
    lanes = tl.arange(0, BLOCK_C)[None, :]
    for start in range(program, tl.cdiv(R, BLOCK_R), programs):
        row, offset, class_0 = row_tile(start, R, C, VEC, BLOCK_R, BLOCK_C)
        target = tl.full([BLOCK_R, 1], -1, tl.int64)
        counts = row < R
        target_weight = counts.to(ACC)
        if not PROBABILITIES:
            target, counts, target_weight = load_targets(target_ptr, weight_ptr, row, row < R, C, ignore_index, ACC)
        row_max = tl.full([BLOCK_R, 1], float("-inf"), ACC)
        sums = tl.zeros([BLOCK_R, BLOCK_C], ACC)
        dots = tl.zeros([BLOCK_R, BLOCK_C], ACC)
        q_sums = tl.zeros([BLOCK_R, BLOCK_C], ACC)
        for tile in range(0, C - class_0, BLOCK_C):
            c = class_0 + tile + lanes
            mask = (c >= 0) & (c < C) & (row < R)
            whole = (class_0 + tile >= 0) & (class_0 + tile + BLOCK_C <= C)
            x = load_tile(x_ptr + offset + tile + lanes, c, mask, whole, ACC, float("-inf"), BLOCK_R)
            new_max = tl.maximum(row_max, tl.max(x, 1, keep_dims=True))
            finite_max = tl.where(new_max == float("-inf"), 0.0, new_max)
            sums = sums * tl.exp(row_max - finite_max) + tl.exp(x - finite_max)
            if PROBABILITIES or SMOOTHING > 0:
                q = wanted(
                    target_ptr + offset + tile + lanes, weight_ptr, c, mask, target, target_weight, C,
                    PROBABILITIES, SMOOTHING, ACC,
                )  # fmt: skip
                # Relative to the maximum, as exponentials are: of logits of -200 the digits after it would be lost.
                dots += q_sums * (tl.where(row_max == float("-inf"), 0.0, row_max) - finite_max)
                dots += tl.where(mask, q * (x - finite_max), 0.0)
                q_sums += q
            row_max = new_max
        log_sum = tl.log(tl.sum(sums, 1, keep_dims=True))
        if PROBABILITIES or SMOOTHING > 0:
            q_sum = tl.sum(q_sums, 1, keep_dims=True)
            loss = q_sum * log_sum - tl.sum(dots, 1, keep_dims=True)
        else:
            q_sum = target_weight
            loss = q_sum * (row_max - tl.load(x_ptr + row * C + target, mask=counts, other=0).to(ACC) + log_sum)
        loss = tl.where(counts, loss, 0.0)
        tl.store(row_max_ptr + row, row_max, mask=row < R)
        tl.store(log_sum_ptr + row, log_sum, mask=row < R)
        tl.store(q_sum_ptr + row, q_sum, mask=row < R)
        if REDUCED:
            losses += loss
            totals += target_weight
        else:
            tl.store(loss_ptr + row, loss, mask=row < R)
    if REDUCED:
        tl.store(partial_ptr + program, tl.sum(losses))
        tl.store(partial_ptr + programs + program, tl.sum(totals))
        if is_last(arrived_ptr, programs, "acq_rel"):
            other = tl.arange(0, BLOCK_PROGRAMS)
            mask = other < programs
            all_losses = tl.load(partial_ptr + other, mask=mask, other=0.0, volatile=True)
            all_totals = tl.load(partial_ptr + programs + other, mask=mask, other=0.0, volatile=True)
            store_sums(loss_ptr, total_ptr, tl.sum(all_losses), tl.sum(all_totals), MEAN)


@entry()
@triton.jit
def cross_entropy_gradient(
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
    grad_stride,
    ignore_index,
    MEAN: tl.constexpr,
    PROBABILITIES: tl.constexpr,
    SMOOTHING: tl.constexpr,
    ACC: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """The gradient by x.

    Args:
        grad_ptr: [R], or one element with grad_stride 0.
        x_ptr, dx_ptr: [R, C].
        target_ptr: [R] of classes, or [R, C] of PROBABILITIES.
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN.
        row_max_ptr, log_sum_ptr, q_sum_ptr: [R] of ACC.
    """
    lanes = tl.arange(0, BLOCK_C)[None, :]
    for start in range(tl.program_id(0), tl.cdiv(R, BLOCK_R), tl.num_programs(0)):
        row, offset, class_0 = row_tile(start, R, C, VEC, BLOCK_R, BLOCK_C)
        target = tl.full([BLOCK_R, 1], -1, tl.int64)
        counts = row < R
        target_weight = counts.to(ACC)
        if not PROBABILITIES:
            target, counts, target_weight = load_targets(target_ptr, weight_ptr, row, row < R, C, ignore_index, ACC)
        grad = tl.load(grad_ptr + row * grad_stride, mask=counts, other=0).to(ACC)
        if MEAN:
            grad = grad / tl.load(total_ptr).to(ACC)
        row_max = tl.load(row_max_ptr + row, mask=counts, other=0)
        log_sum = tl.load(log_sum_ptr + row, mask=counts, other=0)
        q_sum = tl.load(q_sum_ptr + row, mask=counts, other=0)
        for tile in range(0, C - class_0, BLOCK_C):
            c = class_0 + tile + lanes
            mask = (c >= 0) & (c < C) & (row < R)
            whole = (class_0 + tile >= 0) & (class_0 + tile + BLOCK_C <= C)
            x = load_tile(x_ptr + offset + tile + lanes, c, mask, whole, ACC, 0.0, BLOCK_R)
            q = wanted(
                target_ptr + offset + tile + lanes, weight_ptr, c, mask, target, target_weight, C,
                PROBABILITIES, SMOOTHING, ACC,
            )  # fmt: skip
            dx = tl.where(counts, grad * (q_sum * tl.exp(x - row_max - log_sum) - q), 0.0)
            if BLOCK_R == 1:
                if whole:
                    tl.store(dx_ptr + offset + tile + lanes, dx)
                else:
                    tl.store(dx_ptr + offset + tile + lanes, dx, mask=mask)
            else:
                tl.store(dx_ptr + offset + tile + lanes, dx, mask=mask)
