# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def, assignment, misc"
"""Kernels of the cross entropy of logits [R, C] and its gradient. With q the distribution that a row should have,

    log_sum = log(sum(exp(x - row_max)))
    loss = sum(q * (row_max - x + log_sum))
    dx = grad * (sum(q) * exp(x - row_max - log_sum) - q)

A class target t means q = (1 - smoothing) * weight[t] at t, and smoothing / C * weight everywhere; probabilities p mean
q = ((1 - smoothing) * p + smoothing / C) * weight.

    kernel                          a program reads
    cross_entropy_total             BLOCK targets at a time, for the sum of their weights
    cross_entropy_rows              BLOCK_R whole rows in one tile, each in parts, and the next tile meanwhile
    cross_entropy_rows_gradient     the same
    cross_entropy_shared            its share of a long row; the last program merges all rows
    cross_entropy_looped            a row, or its share of it, in a loop, and again to write the gradient
    cross_entropy_looped_gradient   a row in a loop

A loss that is asked for with its gradient (dx_ptr is not None) writes it at once, for a gradient of 1: a row is then
in registers or in a cache still. Long rows have it written later where targets are no classes, or smoothed. The
gradient kernels do nothing where the loss has written it (WRITTEN) and the gradient is 1.
"""

import triton
import triton.language as tl

from ...launch.prepared import entry
from ...launch.workspace import clear, collect, decode, encode, publish
from ..softmax.forward import finite
from ..softmax.tile import exp
from .nll import store_sums
from .targets import check_targets, load_targets, weigh_targets


@triton.jit
def load_row_targets(
    target_ptr, weight_ptr, row, mask, C, ignore_index, PROBABILITIES: tl.constexpr, ACC: tl.constexpr
):
    """The class of each row, whether it counts, and its weight."""
    if PROBABILITIES:
        return tl.full(row.shape, -1, tl.int64), mask, mask.to(ACC)
    else:
        return load_targets(target_ptr, weight_ptr, row, mask, C, ignore_index, ACC)


@triton.jit
def distribution(
    p_ptr, weight_ptr, c, mask, C, PROBABILITIES: tl.constexpr, SMOOTHING: tl.constexpr, ACC: tl.constexpr
):
    """q of a tile, without the share of a class target itself. p_ptr: where the probabilities of the tile are."""
    everywhere = SMOOTHING / tl.cast(C, ACC)
    weight = 1.0
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + c, mask=mask, other=0).to(ACC)
    if PROBABILITIES:
        p = tl.load(p_ptr, mask=mask, other=0).to(ACC)
        q = ((1 - SMOOTHING) * p + everywhere) * weight
    else:
        q = tl.zeros(c.shape, ACC) + everywhere * weight
    return tl.where(mask, q, 0.0)


@triton.jit
def wanted(
    p_ptr, weight_ptr, c, mask, target, target_weight, C,
    PROBABILITIES: tl.constexpr, SMOOTHING: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """q of a tile. p_ptr: where the probabilities of the tile are."""
    if PROBABILITIES:
        q = distribution(p_ptr, weight_ptr, c, mask, C, True, SMOOTHING, ACC)
    else:
        q = tl.where(mask & (c == target), (1 - SMOOTHING) * target_weight, 0.0)
        if SMOOTHING > 0:
            q += distribution(p_ptr, weight_ptr, c, mask, C, False, SMOOTHING, ACC)
    return q


@triton.jit
def row_gradient(grad_ptr, row, grad_stride, total_ptr, R, counts, MEAN: tl.constexpr, ACC: tl.constexpr):
    """The gradient of each row's loss, 0 of a row that does not count. grad_ptr: None for 1."""
    if grad_ptr is None:  # noqa: SIM108
        grad = counts.to(ACC)
    else:
        grad = tl.load(grad_ptr + row * grad_stride, mask=counts, other=0).to(ACC)
    if MEAN:
        if total_ptr is None:  # noqa: SIM108
            grad = grad / tl.cast(R, ACC)
        else:
            grad = grad / tl.load(total_ptr).to(ACC)
    return tl.where(counts, grad, 0.0)


@triton.jit
def rows_to_do(grad_ptr, R, WRITTEN: tl.constexpr):
    """R, or none if the gradient is the one that the forward wrote."""
    if WRITTEN:
        return tl.where(tl.load(grad_ptr).to(tl.float32) == 1.0, 0, R)
    else:
        return R


@triton.jit
def sum_of_programs(words_ptr, programs, ACC: tl.constexpr, WORDS: tl.constexpr):
    """The sum of what all programs publish, of at most WORDS of them at a time."""
    sums = tl.zeros([WORDS], ACC)
    for start in range(0, programs, WORDS):
        own_ptr = words_ptr + start + tl.arange(0, WORDS)
        mask = start + tl.arange(0, WORDS) < programs
        sums += tl.where(mask, decode(collect(own_ptr, mask), ACC), 0.0)
        clear(own_ptr, mask)
    return tl.sum(sums)


@triton.jit
def reduce_losses(
    loss_ptr, total_ptr, words_ptr, program, programs, loss, total, R,
    MEAN: tl.constexpr, TOTALED: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """The sum or mean of what ``programs`` found, by the last of them. TOTALED: the total is there already."""
    if WORDS == 1:
        store_loss(loss_ptr, total_ptr, loss, total, R, MEAN, TOTALED)
    else:
        COUNTED: tl.constexpr = total_ptr is not None and not TOTALED
        publish(words_ptr + program, encode(loss))
        if COUNTED:
            publish(words_ptr + programs + program, encode(total))
        # The last program waits for the others, which wait for none: the launch need not be cooperative.
        if program == programs - 1:
            all_losses = sum_of_programs(words_ptr, programs, loss.dtype, WORDS)
            all_totals = total
            if COUNTED:
                all_totals = sum_of_programs(words_ptr + programs, programs, total.dtype, WORDS)
            store_loss(loss_ptr, total_ptr, all_losses, all_totals, R, MEAN, TOTALED)


@triton.jit
def store_loss(loss_ptr, total_ptr, loss, total, R, MEAN: tl.constexpr, TOTALED: tl.constexpr):
    """``loss_ptr: []``, of the sums over all rows. TOTALED: ``total_ptr: []`` has what a mean divides by."""
    if total_ptr is None:
        tl.store(loss_ptr, loss / tl.cast(R, loss.dtype) if MEAN else loss)
    elif TOTALED:
        tl.store(loss_ptr, loss / tl.load(total_ptr) if MEAN else loss)
    else:
        store_sums(loss_ptr, total_ptr, loss, total, MEAN)


@entry()
@triton.jit
def cross_entropy_total(
    target_ptr,
    weight_ptr,
    total_ptr,
    words_ptr,
    R,
    C,
    ignore_index,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
):
    """What a mean divides by.

    Args:
        target_ptr: [R].
        weight_ptr: [C], None for ones.
        total_ptr: [].
        words_ptr: [programs], None for one.
        WORDS: 1 for one program, else at least as many as threads.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    totals = tl.zeros([BLOCK], ACC)
    for start in range(program.to(tl.int64) * BLOCK, R, programs.to(tl.int64) * BLOCK):
        row = start + tl.arange(0, BLOCK)
        _, _, weight = load_targets(target_ptr, weight_ptr, row, row < R, C, ignore_index, ACC)
        totals += weight
    total = tl.sum(totals)
    if WORDS > 1:
        publish(words_ptr + program, encode(total))
    if program == programs - 1:
        if WORDS > 1:
            total = sum_of_programs(words_ptr, programs, ACC, WORDS)
        tl.store(total_ptr, total)


@triton.jit
def load_rows(
    x_ptr, target_ptr, tile, R, C,
    BLOCK_R: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr, PROBABILITIES: tl.constexpr,
):  # fmt: skip
    """The rows of a tile, their logits in DEPTH parts, and their targets; rows after the last if there is no tile."""
    row = tl.cast(tile, tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)[:, None]
    c = tl.arange(0, WIDTH)[None, :]
    offsets = row * C + c
    x = ()
    for i in tl.static_range(DEPTH - 1):
        x = x + (tl.load(x_ptr + i * WIDTH + offsets, mask=row < R),)
    last = (row < R) & (c < C - (DEPTH - 1) * WIDTH)
    x = x + (tl.load(x_ptr + (DEPTH - 1) * WIDTH + offsets, mask=last, other=float("-inf")),)
    if PROBABILITIES:
        return row, x, row
    else:
        return row, x, tl.load(target_ptr + row, mask=row < R, other=0)


@triton.jit
def losses_of_rows(
    x_ptr, target_ptr, weight_ptr, loss_ptr, total_ptr, row_max_ptr, log_sum_ptr, q_sum_ptr, dx_ptr, row, x, target,
    R, C, ignore_index, REDUCED: tl.constexpr, MEAN: tl.constexpr, PROBABILITIES: tl.constexpr,
    SMOOTHING: tl.constexpr, ACC: tl.constexpr, LOOPS: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """(loss, weight) of each row that load_rows has loaded. Stores all else that cross_entropy_rows stores."""
    c = tl.arange(0, WIDTH)[None, :]
    exists = (row < R) & (c >= 0)
    last = (row < R) & (c < C - (DEPTH - 1) * WIDTH)
    CLASSES: tl.constexpr = not PROBABILITIES and SMOOTHING == 0
    # Where a row's target is loaded already, a load of its logit costs less than a comparison of each element.
    LOADED: tl.constexpr = CLASSES and LOOPS
    if PROBABILITIES:
        target, counts, target_weight = tl.full(row.shape, -1, tl.int64), row < R, (row < R).to(ACC)
    else:
        target = target.to(tl.int64)
        check_targets(target, row < R, C, ignore_index)
        if LOADED:
            # Before ``counts`` is computed: otherwise float64 with a gradient does not compile (Triton 3.6).
            inside = (row < R) & (target >= 0) & (target < C)
            x_target = tl.load(x_ptr + row * C + target, mask=inside, other=0).to(ACC)
        target, counts, target_weight = weigh_targets(target, weight_ptr, row < R, C, ignore_index, ACC)
    row_max = x[0].to(ACC)
    for i in tl.static_range(1, DEPTH):
        row_max = tl.maximum(row_max, x[i].to(ACC))
    row_max = tl.max(row_max, 1, keep_dims=True)
    base = finite(row_max)
    row_sum = exp(x[0].to(ACC) - base)
    for i in tl.static_range(1, DEPTH):
        row_sum += exp(x[i].to(ACC) - base)
    log_sum = tl.log(tl.sum(row_sum, 1, keep_dims=True))
    class_of_row = target.to(tl.int32)
    q = ()
    if not LOADED or dx_ptr is not None:
        for i in tl.static_range(DEPTH):
            mask = exists if i < DEPTH - 1 else last
            of_part = wanted(
                target_ptr + i * WIDTH + (row * C + c), weight_ptr, i * WIDTH + c, mask, class_of_row, target_weight, C,
                PROBABILITIES, SMOOTHING, ACC,
            )  # fmt: skip
            q = q + (of_part,)
    q_sum = target_weight
    if LOADED:
        dot = tl.where(counts, q_sum * (x_target - base), 0.0)
    else:
        if not CLASSES:
            q_sums = q[0]
            for i in tl.static_range(1, DEPTH):
                q_sums += q[i]
            q_sum = tl.sum(q_sums, 1, keep_dims=True)
        dots = tl.zeros(x[0].shape, ACC)
        for i in tl.static_range(DEPTH):
            # A class target ignores other logits, which may be -inf. A distribution makes NaN of them, as in PyTorch.
            of_q = exists if i < DEPTH - 1 else last
            if CLASSES:
                of_q = i * WIDTH + c == class_of_row
            dots += tl.where(of_q, q[i] * (x[i].to(ACC) - base), 0.0)
        dot = tl.sum(dots, 1, keep_dims=True)
    loss = tl.where(counts, q_sum * log_sum - dot, 0.0)
    if row_max_ptr is not None:
        tl.store(row_max_ptr + row, row_max, mask=row < R)
        tl.store(log_sum_ptr + row, log_sum, mask=row < R)
        tl.store(q_sum_ptr + row, q_sum, mask=row < R)
    if dx_ptr is not None:
        grad = row_gradient(None, row, 0, total_ptr, R, counts, MEAN, ACC)
        for i in tl.static_range(DEPTH):
            dx = tl.where(counts, grad * (q_sum * exp(x[i].to(ACC) - base - log_sum) - q[i]), 0.0)
            tl.store(dx_ptr + i * WIDTH + (row * C + c), dx, mask=exists if i < DEPTH - 1 else last)
    if not REDUCED:
        tl.store(loss_ptr + row, loss, mask=row < R)
    return loss, target_weight


@entry()
@triton.jit
def cross_entropy_rows(
    x_ptr,
    target_ptr,
    weight_ptr,
    loss_ptr,
    total_ptr,
    row_max_ptr,
    log_sum_ptr,
    q_sum_ptr,
    words_ptr,
    dx_ptr,
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
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
    WORDS: tl.constexpr,
    LOOPS: tl.constexpr,
):
    """The loss of each row, or their sum or mean, and what the gradient needs; a row in DEPTH parts of WIDTH logits.

    Args:
        x_ptr: [R, C].
        target_ptr: [R] of classes, or [R, C] of PROBABILITIES.
        weight_ptr: [C], None for ones.
        loss_ptr: [R]; [] if REDUCED.
        total_ptr: [], what a mean of classes divides by; read if there is a dx_ptr, else written; may be None.
        row_max_ptr, log_sum_ptr, q_sum_ptr: [R] of ACC; None if no gradient is wanted.
        words_ptr: [2, programs] if REDUCED and there are several, else None.
        dx_ptr: [R, C], None if the gradient is not to be written.
        VEC: divides C.
        WORDS: that are read at once: 1 for one program, else at least as many as threads.
        LOOPS: there are more tiles than programs.
    """
    C = C // VEC * VEC  # C itself, but the compiler now sees that VEC divides it
    first, programs = tl.program_id(0), tl.num_programs(0)
    row, x, target = load_rows(x_ptr, target_ptr, first, R, C, BLOCK_R, DEPTH, WIDTH, PROBABILITIES)
    if LOOPS:
        losses = tl.zeros([BLOCK_R, 1], ACC)
        totals = tl.zeros([BLOCK_R, 1], ACC)
        for start in range(first, tl.cdiv(R, BLOCK_R), programs):
            # On their way while this tile is computed.
            next_row, next_x, next_target = load_rows(
                x_ptr, target_ptr, start + programs, R, C, BLOCK_R, DEPTH, WIDTH, PROBABILITIES
            )
            loss, weight = losses_of_rows(
                x_ptr, target_ptr, weight_ptr, loss_ptr, total_ptr, row_max_ptr, log_sum_ptr, q_sum_ptr, dx_ptr, row, x,
                target, R, C, ignore_index, REDUCED, MEAN, PROBABILITIES, SMOOTHING, ACC, LOOPS, DEPTH, WIDTH,
            )  # fmt: skip
            losses += loss
            totals += weight
            row, x, target = next_row, next_x, next_target
    else:
        losses, totals = losses_of_rows(
            x_ptr, target_ptr, weight_ptr, loss_ptr, total_ptr, row_max_ptr, log_sum_ptr, q_sum_ptr, dx_ptr, row, x,
            target, R, C, ignore_index, REDUCED, MEAN, PROBABILITIES, SMOOTHING, ACC, LOOPS, DEPTH, WIDTH,
        )  # fmt: skip
    if REDUCED:
        reduce_losses(
            loss_ptr, total_ptr, words_ptr, first, programs, tl.sum(losses), tl.sum(totals), R,
            MEAN, dx_ptr is not None, WORDS,
        )  # fmt: skip


@entry()
@triton.jit
def cross_entropy_rows_gradient(
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
    WRITTEN: tl.constexpr,
    MEAN: tl.constexpr,
    PROBABILITIES: tl.constexpr,
    SMOOTHING: tl.constexpr,
    ACC: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK_R: tl.constexpr,
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The gradient by x.

    Args:
        grad_ptr: [R], or one element with grad_stride 0.
        x_ptr, dx_ptr: [R, C].
        target_ptr: [R] of classes, or [R, C] of PROBABILITIES.
        weight_ptr: [C], None for ones.
        total_ptr: [], None unless MEAN of classes.
        row_max_ptr, log_sum_ptr, q_sum_ptr: [R] of ACC.
        WRITTEN: dx is right already if the one gradient is 1.
        VEC: divides C.
    """
    C = C // VEC * VEC  # C itself, but the compiler now sees that VEC divides it
    c = tl.arange(0, WIDTH)[None, :]
    rows = rows_to_do(grad_ptr, R, WRITTEN)
    for start in range(tl.program_id(0), tl.cdiv(rows, BLOCK_R), tl.num_programs(0)):
        row = tl.cast(start, tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)[:, None]
        exists = (row < R) & (c >= 0)
        last = (row < R) & (c < C - (DEPTH - 1) * WIDTH)
        offsets = row * C + c
        # Before anything waits for a target.
        x = ()
        for i in tl.static_range(DEPTH):
            mask = exists if i < DEPTH - 1 else last
            x = x + (tl.load(x_ptr + i * WIDTH + offsets, mask=mask, other=0).to(ACC),)
        target, counts, target_weight = load_row_targets(
            target_ptr, weight_ptr, row, row < R, C, ignore_index, PROBABILITIES, ACC
        )
        grad = row_gradient(grad_ptr, row, grad_stride, total_ptr, R, counts, MEAN, ACC)
        row_max = tl.load(row_max_ptr + row, mask=counts, other=0)
        log_sum = tl.load(log_sum_ptr + row, mask=counts, other=0)
        q_sum = tl.load(q_sum_ptr + row, mask=counts, other=0)
        for i in tl.static_range(DEPTH):
            mask = exists if i < DEPTH - 1 else last
            q = wanted(
                target_ptr + i * WIDTH + offsets, weight_ptr, i * WIDTH + c, mask, target, target_weight, C,
                PROBABILITIES, SMOOTHING, ACC,
            )  # fmt: skip
            dx = tl.where(counts, grad * (q_sum * exp(x[i] - row_max - log_sum) - q), 0.0)
            tl.store(dx_ptr + i * WIDTH + offsets, dx, mask=mask)
